// Decides with all ranks what becomes of activations, and makes the model do it.
#ifndef GEMINID_TRAINING_ENGINES_ACTIVATION_CHOICE_H_
#define GEMINID_TRAINING_ENGINES_ACTIVATION_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "training/engines/trained_model.h"
#include "training/ranks/measured_speed.h"
#include "training/settings/options.h"
#include "training/settings/rank_share.h"
#include "training/transformer/activations.h"

namespace geminid::trainer {

// With how much of weights and gradients a step surely runs: the working set of this rank's part of
// the model, `part_bytes`, and in ZeRO's stages below the third all weights, whose chunks are
// padded. The first stage's sums of gradients are in the statistics' device_state_bytes.
uint64_t StepWorkingSetBytes(const TrainOptions& options, uint64_t part_bytes,
                             const zero::Statistics& statistics);

// What of a rank its choice depends on.
struct RankPart {
  uint64_t bytes = 0;  // `part_bytes`, as above
  int stage = 0;       // of the pipeline
  // TrainedModel::ItemBytes.
  std::vector<uint64_t> item_bytes{};
  // What --parallel auto planned, if it did.
  std::optional<bool> planned_to_keep = std::nullopt;
};

// As options.activations says. For kAuto what fits the smallest arena and is fastest, by some
// milliseconds of measuring; but what was planned is done where it fits. All ranks must call it.
absl::StatusOr<ActivationChoice> ChooseActivations(const TrainOptions& options,
                                                   const RankPart& part,
                                                   const zero::Statistics& statistics,
                                                   const ComputePlace& compute,
                                                   collectives::Communicator& communicator);

// The same for a rank's model, on which `part.bytes` and `part.item_bytes` depend, and makes it
// offload where that was chosen. Where a rank has no memory for that, kAuto computes again.
absl::StatusOr<ActivationChoice> PrepareActivations(const TrainOptions& options, RankPart part,
                                                    size_t threads,
                                                    collectives::Communicator& communicator,
                                                    TrainedModel* model);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_ACTIVATION_CHOICE_H_
