// Runs one rank of `geminid-train --eval-only`, which measures a model's loss.
#ifndef GEMINID_TOOLS_TRAINER_EVALUATE_H_
#define GEMINID_TOOLS_TRAINER_EVALUATE_H_

#include "absl/status/statusor.h"
#include "tools/trainer/train.h"

namespace geminid::trainer {

// Runs EvaluateOnRank; rank 0 prints the loss and writes the report. TrainEnd::diverged: the loss
// is not finite.
absl::StatusOr<TrainEnd> EvaluateAsRank(const TrainOptions& options, const RankContext& context);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_EVALUATE_H_
