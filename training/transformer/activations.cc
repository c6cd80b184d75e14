#include "training/transformer/activations.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace geminid::trainer {
namespace {

uint64_t Beyond(uint64_t bytes, uint64_t limit) { return bytes > limit ? bytes - limit : 0; }

// The bytes of weights that do not fit beside a workspace of this size.
uint64_t Displaced(const ActivationRoom& room, uint64_t workspace_bytes) {
  return std::min(room.weight_bytes,
                  Beyond(workspace_bytes + room.state_bytes + room.weight_bytes, room.arena_bytes));
}

// The least model bytes with which a step runs beside its workspace.
uint64_t LeastModelBytes(const ActivationRoom& room) {
  const bool never_leaves = room.placement == zero::Placement::kDevice;
  return never_leaves ? room.whole_model_bytes : room.state_bytes + room.working_set_bytes;
}

uint64_t LeavingBytes(const ActivationRoom& room, uint32_t places) {
  const auto end = room.item_bytes.end() - places;
  return std::accumulate(room.item_bytes.begin(), end, uint64_t{0});
}

std::string Kept(const ActivationRoom& room) {
  return absl::StrCat("keeping activations takes ", base::FormatBytes(room.kept_bytes));
}

forecast::OffloadRoom OffloadRoomOf(const ActivationRoom& room) {
  return {.arena_bytes = room.arena_bytes,
          .model_bytes = LeastModelBytes(room),
          .workspace_bytes = room.workspace_bytes,
          .input_bytes = room.input_bytes,
          .item_bytes = room.item_bytes};
}

bool OffloadingFits(const ActivationRoom& room, uint32_t places) {
  return forecast::OffloadingFits(OffloadRoomOf(room), places);
}

// The seconds of a micro-batch beyond those that every choice takes.
struct Cost {
  const ActivationRoom& room;
  const ActivationSpeed& speed;

  // The forward and the backward pass each load the weights that do not fit.
  double Loading(uint64_t workspace_bytes) const {
    return 2 * static_cast<double>(Displaced(room, workspace_bytes)) / speed.link_bytes_per_second;
  }
  double Computing() const { return speed.operations / speed.operations_per_second; }
  double Keeping() const { return Loading(room.workspace_bytes + room.kept_bytes); }
  double Recomputing() const { return Loading(room.workspace_bytes) + Computing(); }
  double Copying(uint32_t places) const {
    const double copies =
        2 * static_cast<double>(LeavingBytes(room, places)) / speed.copy_bytes_per_second;
    // Both passes together compute at least three times as much as recomputing does.
    const double hidden = speed.copies_run_beside ? 3 * Computing() : 0;
    return std::max(0.0, copies - hidden);
  }
  double Offloading(uint32_t places) const {
    return Loading(OffloadingBytes(room, places)) + Copying(places);
  }
};

// The fastest number of places that fits; 0: no number fits.
uint32_t BestPlaces(const Cost& cost) {
  const auto items = static_cast<uint32_t>(cost.room.item_bytes.size());
  uint32_t best = 0;
  for (uint32_t places = kFewestPlaces; places < items; ++places) {
    if (!OffloadingFits(cost.room, places)) break;
    if (best == 0 || cost.Offloading(places) < cost.Offloading(best)) best = places;
  }
  return best;
}

}  // namespace

const char* Name(Activations activations) {
  switch (activations) {
    case Activations::kAuto:
      return "auto";
    case Activations::kKeep:
      return "keep";
    case Activations::kOffload:
      return "offload";
    case Activations::kRecompute:
      return "recompute";
  }
  return "";
}

uint64_t OffloadingBytes(const ActivationRoom& room, uint32_t places) {
  return forecast::OffloadingBytes(OffloadRoomOf(room), places);
}

bool KeepingFits(const ActivationRoom& room) {
  return room.workspace_bytes + room.kept_bytes + LeastModelBytes(room) <= room.arena_bytes;
}

uint32_t MostPlaces(const ActivationRoom& room) {
  return forecast::MostPlaces(OffloadRoomOf(room));
}

std::optional<ActivationChoice> ChooseByRoom(const ActivationRoom& room) {
  const uint64_t workspace = room.workspace_bytes + room.kept_bytes;
  if (workspace + room.whole_model_bytes <= room.arena_bytes) {
    return ActivationChoice{
        .how = Activations::kKeep,
        .why = absl::StrCat(Kept(room), ", and the whole model fits beside them")};
  }
  const bool offloads = room.item_bytes.size() > kFewestPlaces;
  if (!KeepingFits(room) && !(offloads && OffloadingFits(room, kFewestPlaces))) {
    return ActivationChoice{
        .how = Activations::kRecompute,
        .why = absl::StrCat(Kept(room), ", for which ", base::FormatBytes(room.arena_bytes),
                            " of device memory may be too little")};
  }
  if (room.placement == zero::Placement::kCpu && KeepingFits(room)) {
    return ActivationChoice{
        .how = Activations::kKeep,
        .why = absl::StrCat(Kept(room), ", and placement cpu evicts the weights anyway")};
  }
  return std::nullopt;
}

ActivationChoice ChooseBySpeed(const ActivationRoom& room, const ActivationSpeed& speed) {
  const Cost cost{room, speed};
  const uint32_t places = BestPlaces(cost);
  ActivationChoice best = {.how = Activations::kRecompute};
  double least = cost.Recomputing();
  if (places > 0 && cost.Offloading(places) <= least) {
    best = {.how = Activations::kOffload, .places = places};
    least = cost.Offloading(places);
  }
  if (KeepingFits(room) && cost.Keeping() <= least) best = {.how = Activations::kKeep};
  best.why = absl::StrFormat("recomputing them takes %.1f ms", 1e3 * cost.Recomputing());
  if (places > 0) {
    absl::StrAppendFormat(&best.why, ", copying %s to host memory and back %.1f ms",
                          base::FormatBytes(LeavingBytes(room, places)),
                          1e3 * cost.Offloading(places));
  }
  if (KeepingFits(room)) {
    absl::StrAppendFormat(&best.why, ", loading the weights that %s of them evict %.1f ms",
                          base::FormatBytes(room.kept_bytes), 1e3 * cost.Keeping());
  }
  return best;
}

double RecomputedOperations(const ModelConfig& config, const MicroBatchShape& shape) {
  const auto tokens = static_cast<double>(shape.tokens());
  const auto hidden = static_cast<double>(config.hidden);
  const auto queries = static_cast<double>(config.heads * config.head_dim());
  const auto keys = static_cast<double>(config.kv_heads * config.head_dim());
  const auto inner = static_cast<double>(config.intermediate);
  const auto gate = static_cast<double>((config.gated_mlp() ? 2 : 1) * config.mlps_per_token());
  return static_cast<double>(config.layers) * 2 * tokens *
         (hidden * (queries + 2 * keys) + static_cast<double>(shape.sequence_length) * queries +
          hidden * gate * inner);
}

}  // namespace geminid::trainer
