// What --eval-only makes of a run's flags and options.
#ifndef GEMINID_TRAINING_SETTINGS_EVALUATION_FLAGS_H_
#define GEMINID_TRAINING_SETTINGS_EVALUATION_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// INVALID_ARGUMENT where a flag of `given` writes what an evaluation does not have, or none says
// what to evaluate. Of flags that only training uses `notes` gets one line. Pure.
absl::Status CheckEvaluationFlags(const std::vector<std::string>& given,
                                  std::vector<std::string>* notes);

// Leaves in the options nothing that belongs to training. INVALID_ARGUMENT for layers that are cut
// over ranks, or a mesh that is to be chosen: neither evaluates yet.
absl::Status MakeEvaluation(TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_EVALUATION_FLAGS_H_
