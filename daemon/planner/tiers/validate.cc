#include "daemon/planner/tiers/validate.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "daemon/planner/tiers/tier_plan.h"

namespace geminid::planner {
namespace {

absl::Status ValidateOptimizer(const TierProblem& problem) {
  if (problem.optimizer.size() != problem.trace.chunks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer has ", problem.optimizer.size(),
                                                   " entries for ", problem.trace.chunks.size(),
                                                   " chunks; each chunk needs one"));
  }
  for (std::size_t c = 0; c < problem.optimizer.size(); ++c) {
    const OptimizerItem& item = problem.optimizer[c];
    const std::uint64_t fields[] = {item.parameters, item.weight_bytes, item.remainder_bytes,
                                    item.moment_bytes, item.gradient_bytes};
    for (const std::uint64_t field : fields) {
      if (field > kMaxChunkBytes) {
        return absl::InvalidArgumentError(absl::StrCat(
            "optimizer[", c, "] holds ", field, "; at most ", kMaxChunkBytes, " are allowed"));
      }
    }
    if ((problem.trace.chunks[c].frozen || item.parameters == 0) &&
        (item.parameters > 0 || item.remainder_bytes > 0 || item.moment_bytes > 0 ||
         item.gradient_bytes > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer[", c, "]: a frozen chunk has a weight and nothing to update"));
    }
    if (item.parameters > 0 && item.state_bytes() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer[", c, "] updates ", item.parameters, " parameters of no bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateActivations(const TierProblem& problem) {
  if (problem.activations.size() > kMaxChunks) {
    return absl::InvalidArgumentError(absl::StrCat("activations has ", problem.activations.size(),
                                                   " entries; at most ", kMaxChunks,
                                                   " are allowed"));
  }
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    const ActivationItem& item = problem.activations[i];
    const auto refuse = [&](const char* why) {
      return absl::InvalidArgumentError(absl::StrCat("activations[", i, "]: ", why));
    };
    if (item.bytes > kMaxChunkBytes) return refuse("bytes is above the limit for one chunk");
    if (item.kept_bytes > item.bytes) return refuse("kept_bytes is more than bytes");
    if (item.produced >= item.consumed) return refuse("produced must come before consumed");
    if (item.consumed >= problem.trace.moments.size()) {
      return refuse("consumed is not a moment of the trace");
    }
    if (!std::isfinite(item.recompute_seconds) || item.recompute_seconds < 0) {
      return refuse("recompute_seconds must be finite and not negative");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTierProblem(const TierProblem& problem) {
  if (absl::Status status = ValidateMachine(problem.machine); !status.ok()) return status;
  Trace trace = problem.trace;
  trace.link = {};
  trace.link.h2d_bytes_per_second = UpRate(problem.machine);
  trace.link.d2h_bytes_per_second = DownRate(problem.machine);
  if (absl::Status status = ValidateTrace(trace); !status.ok()) return status;
  if (absl::Status status = ValidateOptimizer(problem); !status.ok()) return status;
  if (absl::Status status = ValidateActivations(problem); !status.ok()) return status;
  if (problem.planner_options.alignment_bytes == 0) {
    return absl::InvalidArgumentError("planner_options.alignment_bytes must not be 0");
  }
  return absl::OkStatus();
}

absl::Status CheckDecisions(const TierProblem& problem, const Decisions& decisions) {
  if (decisions.optimizer.size() != problem.optimizer.size() ||
      decisions.activations.size() != problem.activations.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("decisions: ", decisions.optimizer.size(), " chunks and ",
                     decisions.activations.size(), " activations, but the problem has ",
                     problem.optimizer.size(), " and ", problem.activations.size()));
  }
  for (std::size_t c = 0; c < problem.optimizer.size(); ++c) {
    if (decisions.optimizer[c] == OptimizerPlace::kStreamed &&
        problem.optimizer[c].parameters == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("decisions.optimizer[", c, "]: nothing to stream, it is never updated"));
    }
  }
  std::uint32_t offloaded = 0;
  for (std::size_t i = 0; i < problem.activations.size(); ++i) {
    const ActivationItem& item = problem.activations[i];
    const ActivationPlace place = decisions.activations[i];
    if ((place == ActivationPlace::kOffload && !item.can_offload) ||
        (place == ActivationPlace::kRecompute && !item.can_recompute)) {
      return absl::InvalidArgumentError(absl::StrCat("decisions.activations[", i,
                                                     "]: ", ActivationPlaceName(place),
                                                     " is not allowed for this activation"));
    }
    offloaded += place == ActivationPlace::kOffload ? 1 : 0;
  }
  if (decisions.activation_places > offloaded ||
      (offloaded > 0 && decisions.activation_places == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("decisions.activation_places is ",
                                                   decisions.activation_places, " for ", offloaded,
                                                   " offloaded activations; give 1 to that many"));
  }
  return absl::OkStatus();
}

}  // namespace geminid::planner
