// Finds flags whose numbers have no effect in a run, once its length and its data are known.
#ifndef GEMINID_TRAINING_SETTINGS_IDLE_FLAGS_H_
#define GEMINID_TRAINING_SETTINGS_IDLE_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "training/settings/options.h"

namespace geminid::trainer {

// A line for each, in the order of the flags' names; of flags that were given alone, for nobody is
// to be told of what this program chose. `samples_per_epoch`: 0 where there are no epochs. Pure.
std::vector<std::string> IdleFlags(const TrainOptions& options, uint64_t samples_per_epoch);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_IDLE_FLAGS_H_
