#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "daemon/planner/hierarchy/hierarchy.h"

namespace geminid::planner {
namespace {

using base::FormatBytes;

std::string Seconds(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.3g ms", seconds * 1e3)
                     : absl::StrFormat("%.3g s", seconds);
}

std::string ExplainMissing(const HierarchyPlan& plan) {
  std::string text = "It does not fit.\n";
  for (std::size_t t = 0; t < kNumTiers; ++t) {
    if (plan.lacking[t] == 0) continue;
    absl::StrAppend(&text, "The ", TierName(static_cast<Tier>(t)), " tier has ",
                    FormatBytes(plan.tiers[t].limit), " and lacks ", FormatBytes(plan.lacking[t]),
                    ".\n");
  }
  for (std::size_t i = 0; i < plan.remedies.size(); ++i) {
    const Remedy& remedy = plan.remedies[i];
    absl::StrAppend(&text, i == 0 ? "It would fit with " : "or with ",
                    FormatBytes(remedy.more_bytes), " more of ", TierName(remedy.tier),
                    " per rank.\n");
  }
  return text;
}

template <typename Place, std::size_t kCount>
std::array<std::size_t, kCount> Count(const std::vector<Place>& places) {
  std::array<std::size_t, kCount> counts = {};
  for (const Place place : places) ++counts[static_cast<std::size_t>(place)];
  return counts;
}

std::string ExplainPlaces(const HierarchyProblem& problem, const HierarchyPlan& plan) {
  const auto optimizer = Count<OptimizerPlace, 3>(plan.decisions.optimizer);
  std::string text = absl::StrFormat(
      "Optimizer state of %d chunks: %d updated on the host, %d on the device, %d streamed through "
      "it.\n",
      problem.optimizer.size(), optimizer[0], optimizer[1], optimizer[2]);
  const bool choice = std::any_of(
      problem.activations.begin(), problem.activations.end(),
      [](const ActivationItem& item) { return item.can_recompute || item.can_offload; });
  if (choice) {
    const auto activations = Count<ActivationPlace, 3>(plan.decisions.activations);
    absl::StrAppendFormat(
        &text, "Activations of %d blocks: %d kept, %d offloaded, %d recomputed.\n",
        problem.activations.size(), activations[0], activations[1], activations[2]);
  }
  return text;
}

std::string ExplainTime(const HierarchyPlan& plan) {
  const StepSeconds& seconds = plan.seconds;
  std::string text = absl::StrCat("A step takes ", Seconds(seconds.step), ": ",
                                  Seconds(seconds.compute), " of computation");
  const std::pair<const char*, double> parts[] = {
      {" before the first operator", seconds.head},
      {" of waits", seconds.waits},
      {" after the last operator", seconds.tail},
      {" for the optimizer", seconds.optimizer},
      {" for the disk", seconds.disk},
  };
  for (const auto& [what, part] : parts) {
    if (part > 0) absl::StrAppend(&text, ", ", Seconds(part), what);
  }
  absl::StrAppend(&text, ". Busiest is ", ResourceName(plan.bottleneck), " with ",
                  Seconds(plan.busy(plan.bottleneck)),
                  "; no schedule of these decisions takes less than ",
                  Seconds(plan.step_lower_bound_seconds));
  if (plan.any_decisions_lower_bound_seconds > 0) {
    absl::StrAppend(&text, ", no decisions less than ",
                    Seconds(plan.any_decisions_lower_bound_seconds));
  }
  return text + ".\n";
}

std::string ExplainDisk(const HierarchyPlan& plan) {
  if (!plan.disk.used) return "";
  // A plan without objects has state on disk that is not cached.
  const char* const what = plan.disk.objects.empty() ? "State takes " : "Host memory caches ";
  std::string text = absl::StrCat(what, FormatBytes(plan.disk.disk_bytes),
                                  " on disk: a step reads ", FormatBytes(plan.traffic.disk_read),
                                  " and writes ", FormatBytes(plan.traffic.disk_written), ".");
  if (plan.disk.life_days > 0 && plan.traffic.disk_written > 0) {
    absl::StrAppendFormat(
        &text, " At that rate the disks last %.3g days%s.", plan.disk.life_days,
        plan.disk.wears_out_soon
            ? ": WARNING, that is soon; more host memory, larger batches or fewer "
              "updates spare them"
            : "");
  }
  return text + "\n";
}

void AddTier(const TierBytes& tier, base::Fnv1a& hash) {
  for (const std::uint64_t bytes : tier.by_owner) hash.Add(bytes);
  hash.Add(tier.peak);
  hash.Add(tier.limit);
}

}  // namespace

std::string ExplainHierarchyPlan(const HierarchyProblem& problem, const HierarchyPlan& plan) {
  if (!plan.fits) return ExplainMissing(plan);
  std::string text;
  if (plan.everything_on_device) {
    text = "Everything fits on the device: nothing crosses a link.\n";
  } else {
    text = ExplainPlaces(problem, plan);
    absl::StrAppend(&text, "A step moves ", FormatBytes(plan.traffic.up()), " up and ",
                    FormatBytes(plan.traffic.down()), " down, for each rank.\n");
  }
  return absl::StrCat(text, ExplainTime(plan), ExplainDisk(plan));
}

std::uint64_t HierarchyPlanHash(const HierarchyPlan& plan) {
  base::Fnv1a hash;
  hash.Add(plan.decisions.optimizer.size());
  for (const OptimizerPlace place : plan.decisions.optimizer) {
    hash.Add(static_cast<std::uint64_t>(place));
  }
  for (const ActivationPlace place : plan.decisions.activations) {
    hash.Add(static_cast<std::uint64_t>(place));
  }
  hash.Add(plan.fits ? 1 : 0);
  for (const std::uint64_t bytes : plan.lacking) hash.Add(bytes);
  for (const Remedy& remedy : plan.remedies) hash.Add(remedy.more_bytes);
  hash.Add(PlanHash(plan.device_plan));
  hash.Add(PlanHash(plan.disk.plan));
  hash.Add(plan.disk.disk_bytes);
  hash.AddReal(plan.disk.life_days);
  for (const TierBytes& tier : plan.tiers) AddTier(tier, hash);
  const StepTraffic& traffic = plan.traffic;
  for (const std::uint64_t bytes : {traffic.up(), traffic.down(), traffic.host_memory,
                                    traffic.disk_read, traffic.disk_written}) {
    hash.Add(bytes);
  }
  const StepSeconds& seconds = plan.seconds;
  for (const double part :
       {seconds.compute, seconds.head, seconds.waits, seconds.tail, seconds.optimizer, seconds.disk,
        seconds.step, plan.step_lower_bound_seconds, plan.any_decisions_lower_bound_seconds}) {
    hash.AddReal(part);
  }
  for (const double busy : plan.busy_seconds) hash.AddReal(busy);
  return hash.value();
}

const char* OptimizerPlaceName(OptimizerPlace place) {
  static constexpr const char* kNames[] = {"host", "device", "streamed"};
  return kNames[static_cast<std::size_t>(place)];
}

const char* ActivationPlaceName(ActivationPlace place) {
  static constexpr const char* kNames[] = {"keep", "offload", "recompute"};
  return kNames[static_cast<std::size_t>(place)];
}

const char* TierName(Tier tier) {
  static constexpr const char* kNames[] = {"device", "host", "disk"};
  return kNames[static_cast<std::size_t>(tier)];
}

const char* OwnerName(Owner owner) {
  static constexpr const char* kNames[] = {"weights",     "optimizer state", "gradients",
                                           "activations", "workspace",       "staging"};
  return kNames[static_cast<std::size_t>(owner)];
}

const char* ResourceName(Resource resource) {
  static constexpr const char* kNames[] = {"computation",  "the link up", "the link down",
                                           "the link",     "host memory", "the CPU optimizer",
                                           "disk reading", "disk writing"};
  return kNames[static_cast<std::size_t>(resource)];
}

}  // namespace geminid::planner
