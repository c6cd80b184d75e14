// --accumulate auto:MIN:MAX and --batch auto:MIN:MAX, and which runs can follow their gradient
// noise.
#ifndef GEMINID_TRAINING_SETTINGS_ACCUMULATE_RANGE_H_
#define GEMINID_TRAINING_SETTINGS_ACCUMULATE_RANGE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/settings/options.h"

namespace geminid::trainer {

inline constexpr uint64_t kBatchMax = 1 << 20;
inline constexpr uint64_t kAccumulateMax = 1 << 16;

// The value of --accumulate auto: the fewest and the most micro-batches of a step.
absl::StatusOr<AccumulateRange> ParseAccumulateRange(const std::string& value);

// Bounds of a step's sequences over all ranks, in micro-batches of one size.
struct BatchRange {
  uint64_t micro_batch = 0;  // sequences of all ranks
  AccumulateRange micro_batches;
};
// The value of --batch auto: the fewest and the most sequences of a step. A step of the fewest has
// as many micro-batches as --accumulate says, in which a resumed run may have a range.
absl::StatusOr<BatchRange> ParseBatchRange(const std::string& value, const std::string& accumulate);

// INVALID_ARGUMENT if a run on so many ranks does not measure its gradient noise, or cannot change
// its number of micro-batches. OK for a run whose number stays.
absl::Status CheckAccumulateRange(const TrainOptions& options, int ranks);

// INVALID_ARGUMENT, with bounds to give instead, if `shares` ranks cannot divide a micro-batch of
// --batch auto among themselves. OK for every other run.
absl::Status CheckBatchRange(const TrainOptions& options, uint64_t shares);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_ACCUMULATE_RANGE_H_
