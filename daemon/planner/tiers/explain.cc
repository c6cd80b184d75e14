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
#include "daemon/planner/tiers/tier_plan.h"

namespace geminid::planner {
namespace {

using base::FormatBytes;

std::string Seconds(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.3g ms", seconds * 1e3)
                     : absl::StrFormat("%.3g s", seconds);
}

std::string ExplainMissing(const TierPlan& plan) {
  std::string text = "It does not fit.\n";
  for (std::size_t t = 0; t < kNumTiers; ++t) {
    if (plan.lacking[t] == 0) continue;
    absl::StrAppend(&text, "The ", TierName(static_cast<Tier>(t)), " tier has ",
                    FormatBytes(plan.tiers[t].limit), " and lacks ", FormatBytes(plan.lacking[t]),
                    ".\n");
  }
  return text;
}

template <typename Place, std::size_t kCount>
std::array<std::size_t, kCount> Count(const std::vector<Place>& places) {
  std::array<std::size_t, kCount> counts = {};
  for (const Place place : places) ++counts[static_cast<std::size_t>(place)];
  return counts;
}

std::string ExplainPlaces(const TierProblem& problem, const TierPlan& plan) {
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
    if (plan.decisions.activation_places > 0) {
      absl::StrAppend(&text, "The last ", plan.decisions.activation_places,
                      " of the offloaded ones stay on the device.\n");
    }
  }
  return text;
}

std::string ExplainTime(const TierPlan& plan) {
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
  return text + ".\n";
}

std::string ExplainDisk(const TierPlan& plan) {
  if (!plan.disk.used) return "";
  std::string text = absl::StrCat("State takes ", FormatBytes(plan.disk.disk_bytes),
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

}  // namespace

std::string ExplainTierPlan(const TierProblem& problem, const TierPlan& plan) {
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
