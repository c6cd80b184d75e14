// Runs one rank of a training run, from the connection to the daemon to the report.
#ifndef GEMINID_TOOLS_TRAINER_TRAIN_H_
#define GEMINID_TOOLS_TRAINER_TRAIN_H_

#include "absl/status/statusor.h"
#include "training/ranks/rank_session.h"
#include "training/ranks/run_end.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Trains to the end, or to the end of a step in which some rank was asked to stop. All ranks end
// after the same step, in the same way. Rank 0 shows progress and writes the report. Blocks; the
// other ranks must run at the same time. If it fails, the other ranks fail too, with ABORTED.
absl::StatusOr<TrainEnd> TrainAsRank(const TrainOptions& options, const RankContext& context);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_TRAIN_H_
