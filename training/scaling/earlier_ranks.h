// Ranks of earlier starts of a run, which had another number of ranks.
#ifndef GEMINID_TRAINING_SCALING_EARLIER_RANKS_H_
#define GEMINID_TRAINING_SCALING_EARLIER_RANKS_H_

#include "absl/status/status.h"
#include "training/ranks/rank_session.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Before a rank of a start that follows another number of ranks connects to the daemon: ends what
// those have left there. Of the first rank of each host.
absl::Status EndEarlierRanks(const TrainOptions& options, const RankContext& context);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_EARLIER_RANKS_H_
