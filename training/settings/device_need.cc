#include "training/settings/device_need.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/flag_values.h"
#include "base/pages.h"
#include "training/forecast/forecast.h"
#include "training/forecast/trainer_need.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/rank_share.h"

namespace geminid::trainer {
namespace {

// What all errors of an arena that is too small say.
constexpr char kArenaWords[] = "device arena";

}  // namespace

uint64_t EnoughDeviceBytes(const TrainOptions& options, int world_size, size_t threads) {
  const uint64_t workspace = WorkspaceBytesOfShare(options, world_size, threads);
  const uint64_t element = zero::SizeOf(options.zero.data_type);
  if (options.parallel.tensor.size > 1) {
    const uint64_t bytes = workspace + 2 * element * ParametersOfShare(options);
    return base::RoundUp(bytes, forecast::MemoryStep(bytes));
  }
  const bool on_device = options.zero.placement == zero::Placement::kDevice;
  const int sharing = world_size / (options.parallel.pipeline * options.parallel.expert);
  return forecast::TrainerDeviceBytes(
      ForecastModelOf(LargestPart(options)),
      {.workspace_bytes = workspace,
       .element_bytes = element,
       .sharing_ranks = static_cast<uint64_t>(std::max(1, sharing)),
       .sums_gradients = options.zero.accumulate > 1,
       .weights_stay = on_device || options.zero.stage != zero::Stage::kWeights,
       .state_on_device =
           on_device || options.zero.state_placement == zero::StatePlacement::kDevice,
       .state_bytes = StateBytesPerParameter(options)});
}

absl::Status WithDeviceAdvice(const absl::Status& status, const TrainOptions& options,
                              int world_size, size_t threads) {
  const bool is_it = absl::IsResourceExhausted(status) && options.device_memory_bytes &&
                     absl::StrContains(status.message(), kArenaWords);
  if (!is_it) return status;
  const uint64_t enough = EnoughDeviceBytes(options, world_size, threads);
  std::string advice = "give a smaller --batch or --context, or more --ranks";
  if (enough > *options.device_memory_bytes) {
    advice = absl::StrCat("this run trains with --device-memory ", base::ExactBytes(enough),
                          "; or ", advice);
  }
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), "; ", advice));
}

}  // namespace geminid::trainer
