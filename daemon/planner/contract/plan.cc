#include "daemon/planner/contract/plan.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/hash.h"

namespace geminid::planner {
namespace {

// The longest stalls that an explanation names.
constexpr std::size_t kStallsShown = 3;

std::string Bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  constexpr std::size_t kLastUnit = sizeof(kUnits) / sizeof(kUnits[0]) - 1;
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < kLastUnit; ++unit) value /= 1024;
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3f ms", seconds * 1e3); }

std::string ExplainSpace(const Trace& trace) {
  std::uint64_t least = trace.arena_bytes;
  std::size_t fullest = 0;
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    const std::uint64_t workspace = trace.moments[t].workspace_bytes;
    const std::uint64_t left = workspace < trace.arena_bytes ? trace.arena_bytes - workspace : 0;
    if (left >= least) continue;
    least = left;
    fullest = t;
  }
  std::uint64_t total = 0;
  for (const Chunk& chunk : trace.chunks) total += chunk.size_bytes;
  return absl::StrFormat(
      "The arena has %s. Moment %d of %d leaves the least for chunks, %s; all %d chunks take %s.\n",
      Bytes(trace.arena_bytes), fullest, trace.moments.size(), Bytes(least), trace.chunks.size(),
      Bytes(total));
}

std::string ExplainStaying(const Plan& plan) {
  std::size_t permanent = 0;
  std::size_t loads = 0;
  for (const Residency& residency : plan.residencies) {
    ++(residency.permanent ? permanent : loads);
  }
  std::string text = absl::StrFormat("Placement policy %s: ", PolicyName(plan.options.policy));
  if (plan.everything_fits) {
    absl::StrAppend(&text, "everything fits, each chunk has a place of its own; ");
  }
  absl::StrAppendFormat(&text, "%d chunks never leave the device, %d loads per iteration.\n",
                        permanent, loads);
  return text;
}

std::string ExplainTraffic(const Plan& plan) {
  if (plan.h2d_bytes == 0) return "Nothing has to be loaded.\n";
  std::string text = absl::StrFormat("An iteration loads %s", Bytes(plan.h2d_bytes));
  if (plan.h2d_bytes == plan.lower_bound_bytes) {
    absl::StrAppend(&text, ", the least that any plan can do");
  } else if (plan.lower_bound_bytes > 0) {
    absl::StrAppendFormat(
        &text, ", %.3f times the lower bound of %s",
        static_cast<double>(plan.h2d_bytes) / static_cast<double>(plan.lower_bound_bytes),
        Bytes(plan.lower_bound_bytes));
  }
  if (plan.split_bytes > 0) {
    absl::StrAppendFormat(&text, " (%s of it because no fixed place was free for longer)",
                          Bytes(plan.split_bytes));
  }
  absl::StrAppendFormat(&text, ", and sends %s of gradients down.\n", Bytes(plan.d2h_bytes));
  return text;
}

std::string ExplainCause(const Trace& trace, const Stall& stall) {
  const std::uint64_t id = trace.chunks[stall.chunk].id;
  switch (stall.cause) {
    case StallCause::kSpace:
      return absl::StrCat("no space was free to load chunk ", id, " earlier");
    case StallCause::kLink:
      return absl::StrCat("the link cannot bring chunk ", id, " sooner");
    case StallCause::kIterationBoundary:
      return absl::StrCat("chunk ", id, " cannot be loaded before the optimizer has updated it");
    case StallCause::kLookahead:
      return absl::StrCat("max_lookahead_moments forbids loading chunk ", id, " earlier");
    case StallCause::kDrain:
      return absl::StrCat("the gradient of chunk ", id, " must be written back first");
  }
  return "unknown";
}

std::string ExplainTime(const Trace& trace, const Plan& plan) {
  double stalled = 0;
  for (const Stall& stall : plan.stalls) stalled += stall.seconds;
  std::string text = absl::StrFormat(
      "A step is predicted to take %s without the optimizer: %s of computation and %s of waiting "
      "at %d moments. No plan can do it in less than %s.\n",
      Milliseconds(plan.predicted_step_seconds), Milliseconds(plan.compute_seconds),
      Milliseconds(stalled), plan.stalls.size(), Milliseconds(plan.step_lower_bound_seconds));
  std::vector<Stall> longest = plan.stalls;
  std::stable_sort(longest.begin(), longest.end(),
                   [](const Stall& a, const Stall& b) { return a.seconds > b.seconds; });
  longest.resize(std::min(longest.size(), kStallsShown));
  for (const Stall& stall : longest) {
    absl::StrAppendFormat(&text, "  %s (%s of it unavoidable) at moment %d: %s.\n",
                          Milliseconds(stall.seconds), Milliseconds(stall.unavoidable_seconds),
                          stall.moment, ExplainCause(trace, stall));
  }
  return text;
}

void AddOptions(const PlannerOptions& options, base::Fnv1a& hash) {
  hash.Add(static_cast<std::uint64_t>(options.policy));
  hash.Add(static_cast<std::uint64_t>(options.objective));
  hash.Add(options.weights_change_between_iterations ? 1 : 0);
  hash.Add(options.drain_moments);
  hash.Add(options.max_lookahead_moments);
  hash.AddReal(options.slack_seconds);
  hash.Add(options.alignment_bytes);
}

void AddSteps(const std::vector<Step>& steps, base::Fnv1a& hash) {
  hash.Add(steps.size());
  for (const Step& step : steps) {
    hash.Add(step.loads.size());
    for (const Load& load : step.loads) {
      hash.Add(load.chunk);
      hash.Add(load.device_offset);
      hash.Add(load.deadline_moment);
      hash.Add(load.order);
    }
    hash.Add(step.drops.size());
    for (const Drop& drop : step.drops) {
      hash.Add(drop.chunk);
      hash.Add(drop.becomes_gradient ? 1 : 0);
      hash.Add(drop.free_moment);
    }
  }
}

void AddResidencies(const Plan& plan, base::Fnv1a& hash) {
  hash.Add(plan.resident_at_start.size());
  for (const Placement& placement : plan.resident_at_start) {
    hash.Add(placement.chunk);
    hash.Add(placement.device_offset);
  }
  hash.Add(plan.residencies.size());
  for (const Residency& residency : plan.residencies) {
    hash.Add(residency.chunk);
    hash.Add(residency.device_offset);
    hash.AddSigned(residency.begin);
    hash.AddSigned(residency.first_use);
    hash.AddSigned(residency.last_use);
    hash.AddSigned(residency.end);
    hash.Add(residency.permanent ? 1 : 0);
  }
}

}  // namespace

std::uint64_t PlanHash(const Plan& plan) {
  base::Fnv1a hash;
  AddOptions(plan.options, hash);
  hash.Add(plan.trace_hash);
  hash.Add(plan.everything_fits ? 1 : 0);
  AddSteps(plan.steps, hash);
  AddResidencies(plan, hash);
  hash.Add(plan.h2d_bytes);
  hash.Add(plan.d2h_bytes);
  hash.Add(plan.lower_bound_bytes);
  hash.Add(plan.split_bytes);
  hash.AddReal(plan.compute_seconds);
  hash.AddReal(plan.predicted_step_seconds);
  hash.AddReal(plan.step_lower_bound_seconds);
  hash.Add(plan.stalls.size());
  for (const Stall& stall : plan.stalls) {
    hash.Add(stall.moment);
    hash.AddReal(stall.seconds);
    hash.AddReal(stall.unavoidable_seconds);
    hash.Add(static_cast<std::uint64_t>(stall.cause));
    hash.Add(stall.chunk);
  }
  return hash.value();
}

std::string ExplainPlan(const Trace& trace, const Plan& plan) {
  return absl::StrCat(ExplainSpace(trace), ExplainStaying(plan), ExplainTraffic(plan),
                      ExplainTime(trace, plan));
}

const char* PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kDevice:
      return "device";
    case Policy::kCpu:
      return "cpu";
    case Policy::kAuto:
      return "auto";
  }
  return "unknown";
}

const char* StallCauseName(StallCause cause) {
  switch (cause) {
    case StallCause::kSpace:
      return "space";
    case StallCause::kLink:
      return "link";
    case StallCause::kIterationBoundary:
      return "iteration_boundary";
    case StallCause::kLookahead:
      return "lookahead";
    case StallCause::kDrain:
      return "drain";
  }
  return "unknown";
}

}  // namespace geminid::planner
