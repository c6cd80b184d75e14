// Finds flags whose numbers have no effect in a run, once its length and its data are known.
#ifndef GEMINID_TRAINING_SETTINGS_IDLE_FLAGS_H_
#define GEMINID_TRAINING_SETTINGS_IDLE_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "training/settings/options.h"

namespace geminid::trainer {

// A line for each such flag, in the order of names. Only flags of the command line count, not
// values that this program chose. `samples_per_epoch` is 0 without epochs. Pure.
std::vector<std::string> IdleFlags(const TrainOptions& options, uint64_t samples_per_epoch);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_IDLE_FLAGS_H_
