// Which runs can follow their gradient noise (--accumulate auto:MIN:MAX).
#ifndef GEMINID_TRAINING_SETTINGS_ACCUMULATE_RANGE_H_
#define GEMINID_TRAINING_SETTINGS_ACCUMULATE_RANGE_H_

#include "absl/status/status.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// INVALID_ARGUMENT if a run on so many ranks does not measure its gradient noise, or cannot change
// its number of micro-batches. OK without --accumulate auto.
absl::Status CheckAccumulateRange(const TrainOptions& options, int ranks);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_ACCUMULATE_RANGE_H_
