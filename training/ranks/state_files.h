// Files of optimizer state (zero::StatePlacement::kDisk) that ranks of a run have left.
#ifndef GEMINID_TRAINING_RANKS_STATE_FILES_H_
#define GEMINID_TRAINING_RANKS_STATE_FILES_H_

#include <string>

#include "training/settings/options.h"

namespace geminid::trainer {

// Removes those of so many ranks of the job with this GEMINID_JOB_ID, on this host: no rank of it
// runs, and none will be started again.
void RemoveStateFiles(const TrainOptions& options, const std::string& job_id, int ranks);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_STATE_FILES_H_
