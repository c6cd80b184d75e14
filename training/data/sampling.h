// Which sequences of the data a run trains on, and in which order. Pure.
#ifndef GEMINID_TRAINING_DATA_SAMPLING_H_
#define GEMINID_TRAINING_DATA_SAMPLING_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace geminid::trainer {

// Below, a window is one of the sequences without overlap that the data is divided into from its
// first token on. Tokens after the last whole one, and the token that it is to foretell, are in
// none.
enum class Sampling {
  kReplacement,  // a sequence begins at any token, drawn independently of the others
  kShuffle,      // each window once in each epoch, in an order of the epoch's own
  kSequential,   // each window once in each epoch, in the order of the data
};
const char* Name(Sampling sampling);

// How many windows of `context` tokens there are, each with the token after it. At least 1 where
// CheckLength passes.
uint64_t WindowsIn(uint64_t tokens, uint64_t context);

// The first token of a run's sample of that number, which is counted from 0 through all epochs. It
// depends on nothing else than these: samples can be drawn in any order, by any rank.
uint64_t StartOfSample(Sampling sampling, uint64_t seed, uint64_t tokens, uint64_t context,
                       uint64_t sample);

// The fewest steps in which `epochs` epochs end. The last step may reach into the next epoch.
// INVALID_ARGUMENT, with what to do, where that is more than `steps_max`.
absl::StatusOr<uint64_t> StepsOfEpochs(uint64_t epochs, uint64_t windows,
                                       uint64_t sequences_per_step, uint64_t steps_max);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_SAMPLING_H_
