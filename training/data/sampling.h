// Which sequences of the data a run trains on, and in which order. Pure.
#ifndef GEMINID_TRAINING_DATA_SAMPLING_H_
#define GEMINID_TRAINING_DATA_SAMPLING_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace geminid::trainer {

// The data is divided into windows: consecutive sequences without overlap, from the first token on.
// No window contains the tokens after the last whole window, or that window's last target.
enum class Sampling {
  kReplacement,  // a sequence begins at any token, drawn independently of the others
  kShuffle,      // each window once in each epoch, in an order of the epoch's own
  kSequential,   // each window once in each epoch, in the order of the data
};
const char* Name(Sampling sampling);

// The number of windows of `context` tokens, if each must have a next token. At least 1 if
// CheckLength passes.
uint64_t WindowsIn(uint64_t tokens, uint64_t context);

// The first token of a run's sample. Samples are counted from 0 through all epochs. The result
// depends only on these arguments, so any rank can draw samples in any order.
uint64_t StartOfSample(Sampling sampling, uint64_t seed, uint64_t tokens, uint64_t context,
                       uint64_t sample);

// The smallest number of steps that completes `epochs` epochs. The last step may reach into the
// next epoch. INVALID_ARGUMENT, with what to do, if this is more than `steps_max`.
absl::StatusOr<uint64_t> StepsOfEpochs(uint64_t epochs, uint64_t windows,
                                       uint64_t sequences_per_step, uint64_t steps_max);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_SAMPLING_H_
