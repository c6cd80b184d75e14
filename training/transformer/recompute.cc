#include "training/transformer/recompute.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace geminid::trainer {
namespace {

uint64_t Beyond(uint64_t bytes, uint64_t limit) { return bytes > limit ? bytes - limit : 0; }

// Bytes of weights that find no place beside a workspace of that size.
uint64_t Displaced(const RecomputeRoom& room, uint64_t workspace_bytes) {
  return std::min(room.weight_bytes,
                  Beyond(workspace_bytes + room.state_bytes + room.weight_bytes, room.arena_bytes));
}

std::string Kept(const RecomputeRoom& room) {
  return absl::StrCat("keeping activations takes ", base::FormatBytes(room.kept_bytes));
}

}  // namespace

const char* Name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kAuto:
      return "auto";
    case Recompute::kOn:
      return "on";
    case Recompute::kOff:
      return "off";
  }
  return "";
}

std::optional<RecomputeChoice> ChooseByRoom(const RecomputeRoom& room) {
  const uint64_t workspace = room.workspace_bytes + room.kept_bytes;
  if (workspace + room.whole_model_bytes <= room.arena_bytes) {
    return RecomputeChoice{true, absl::StrCat(Kept(room), ", and all of the model fits beside")};
  }
  const bool never_leaves = room.placement == zero::Placement::kDevice;
  const uint64_t model =
      never_leaves ? room.whole_model_bytes : room.state_bytes + room.working_set_bytes;
  if (workspace + model > room.arena_bytes) {
    return RecomputeChoice{
        false, absl::StrCat(Kept(room), ", for which ", base::FormatBytes(room.arena_bytes),
                            " of device memory may be too little")};
  }
  if (room.placement == zero::Placement::kCpu) {
    return RecomputeChoice{true, absl::StrCat(Kept(room), ", and the weights leave anyway")};
  }
  return std::nullopt;
}

RecomputeChoice ChooseBySpeed(const RecomputeRoom& room, const RecomputeSpeed& speed) {
  const uint64_t more = Displaced(room, room.workspace_bytes + room.kept_bytes) -
                        Displaced(room, room.workspace_bytes);
  // Forward and backward pass each load what is not there.
  const double loading = 2 * static_cast<double>(more) / speed.link_bytes_per_second;
  const double computing = speed.operations / speed.operations_per_second;
  const bool keeps = loading <= computing;
  return {keeps, absl::StrFormat("%s; loading the weights that leave for them takes %.1f ms, "
                                 "computing them again %.1f ms",
                                 Kept(room), 1e3 * loading, 1e3 * computing)};
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

uint64_t WorkingSetBytes(const ModelParameters& parameters, zero::DataType data_type,
                         uint64_t chunk_elements) {
  uint64_t largest = 0;
  const auto note = [&](std::span<const ParameterId> ids) {
    uint64_t elements = 0;
    for (const ParameterId id : ids) {
      const ParameterSpec& spec = parameters.specs[static_cast<size_t>(id)];
      if (!spec.data_type) elements += spec.elements();
    }
    largest = std::max(largest, elements);
  };
  // Those of a type of their own are small, and share chunks over operators: all of them stay.
  uint64_t staying_bytes = 0;
  for (const ParameterSpec& spec : parameters.specs) {
    if (spec.data_type) staying_bytes += spec.elements() * zero::SizeOf(*spec.data_type);
  }
  for (const AttentionPlaces& half : parameters.attention) note(half.all);
  for (const MlpPlaces& half : parameters.mlp) note(half.all);
  for (const RoutedPlaces& half : parameters.routed) {
    for (const ExpertPlaces& expert : half.experts) {
      std::vector<ParameterId> together = half.all;
      together.insert(together.end(), expert.all.begin(), expert.all.end());
      note(together);
    }
  }
  note(std::vector<ParameterId>{parameters.token_table});
  note(std::vector<ParameterId>{parameters.output.weight});
  // Chunks are whole, and an operator's may begin and end within one.
  constexpr uint64_t kEnds = 2;
  return 2 * ((largest + kEnds * chunk_elements) * zero::SizeOf(data_type) + staying_bytes);
}

}  // namespace geminid::trainer
