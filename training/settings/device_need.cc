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
#include "training/transformer/activations.h"

namespace geminid::trainer {
namespace {

// What all errors of an arena that is too small say.
constexpr char kArenaWords[] = "device arena";

// With what stays on the device of activations: where the run decides, nothing.
uint64_t BytesBesideModel(const TrainOptions& options, int world_size, size_t threads) {
  const uint64_t recomputing = WorkspaceBytesOfShare(options, world_size, threads);
  if (options.activations == Activations::kKeep) {
    return recomputing + KeptBytesOfShare(options, world_size);
  }
  if (options.activations != Activations::kOffload) return recomputing;
  const ActivationRoom room = {.workspace_bytes = recomputing,
                               .item_bytes = ItemBytesOfShare(options, world_size),
                               .input_bytes = InputBytesOfShare(options, world_size)};
  if (room.item_bytes.empty()) return recomputing;
  return OffloadingBytes(room,
                         std::min(kFewestPlaces, static_cast<uint32_t>(room.item_bytes.size())));
}

// What the run would take instead if it did not keep all activations on the device.
std::string OtherActivations(const TrainOptions& options, int world_size, size_t threads,
                             uint64_t kept) {
  std::string words;
  TrainOptions other = options;
  for (const Activations activations : {Activations::kOffload, Activations::kRecompute}) {
    other.activations = activations;
    if (activations == Activations::kOffload &&
        ItemBytesOfShare(options, world_size).size() <= kFewestPlaces) {
      continue;
    }
    const uint64_t enough = EnoughDeviceBytes(other, world_size, threads);
    if (enough >= kept) continue;
    absl::StrAppend(&words, "with --activations ", Name(activations), " it takes ",
                    base::ExactBytes(enough), "; ");
  }
  return words;
}

// The places of streamed state are a sixteenth of the arena, or of an arena that is very small
// more.
uint64_t WithStreamedPlaces(const TrainOptions& options, uint64_t bytes) {
  if (options.zero.state_placement != zero::StatePlacement::kStreamed) return bytes;
  const uint64_t enough = bytes + bytes / 8;
  return base::RoundUp(enough, forecast::MemoryStep(enough));
}

uint64_t EnoughBesideStreams(const TrainOptions& options, int world_size, size_t threads) {
  const uint64_t workspace = BytesBesideModel(options, world_size, threads);
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
       .state_bytes = StateBytesPerParameter(options),
       .whole_matrices = std::holds_alternative<zero::MuonOptions>(options.zero.optimizer)});
}

}  // namespace

uint64_t EnoughDeviceBytes(const TrainOptions& options, int world_size, size_t threads) {
  return WithStreamedPlaces(options, EnoughBesideStreams(options, world_size, threads));
}

absl::Status WithDeviceAdvice(const absl::Status& status, const TrainOptions& options,
                              int world_size, size_t threads) {
  const bool is_it = absl::IsResourceExhausted(status) && options.device_memory_bytes &&
                     absl::StrContains(status.message(), kArenaWords);
  if (!is_it) return status;
  const uint64_t enough = EnoughDeviceBytes(options, world_size, threads);
  std::string advice = "give a smaller --batch or --context, or more --ranks";
  if (enough > *options.device_memory_bytes) {
    const std::string other = options.activations == Activations::kKeep
                                  ? OtherActivations(options, world_size, threads, enough)
                                  : "";
    advice = absl::StrCat("this run trains with --device-memory ", base::ExactBytes(enough), "; ",
                          other, "or ", advice);
  }
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), "; ", advice));
}

}  // namespace geminid::trainer
