// Decides with all ranks whether activations are kept, offloaded or recomputed, and prepares the
// model for it.
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

// The bytes of weights and gradients that are enough for a step: the working set of this rank's
// part of the model, `part_bytes`; in ZeRO stages 1 and 2 all weights, with their chunks' padding.
// Stage 1's sums of gradients are in device_state_bytes of the statistics.
uint64_t StepWorkingSetBytes(const TrainOptions& options, uint64_t part_bytes,
                             const zero::Statistics& statistics);

// The facts about a rank on which its choice depends.
struct RankPart {
  uint64_t bytes = 0;  // `part_bytes`, as above
  int stage = 0;       // of the pipeline
  // TrainedModel::ItemBytes.
  std::vector<uint64_t> item_bytes{};
  // What --parallel auto planned, if it did.
  std::optional<bool> planned_to_keep = std::nullopt;
};

// Follows options.activations. For kAuto it takes the planned way if that fits. Without a plan it
// measures for some milliseconds and takes the fastest way that fits the smallest arena. All ranks
// must call it.
absl::StatusOr<ActivationChoice> ChooseActivations(const TrainOptions& options,
                                                   const RankPart& part,
                                                   const zero::Statistics& statistics,
                                                   const ComputePlace& compute,
                                                   collectives::Communicator& communicator);

// Chooses for the model of a rank, fills in `part.bytes` and `part.item_bytes`, and makes the model
// offload if that was chosen. If a rank has no memory for offloading, kAuto recomputes.
absl::StatusOr<ActivationChoice> PrepareActivations(const TrainOptions& options, RankPart part,
                                                    size_t threads,
                                                    collectives::Communicator& communicator,
                                                    TrainedModel* model);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_ACTIVATION_CHOICE_H_
