// Checks and adapts a run's flags and options for --eval-only.
#ifndef GEMINID_TRAINING_SETTINGS_EVALUATION_FLAGS_H_
#define GEMINID_TRAINING_SETTINGS_EVALUATION_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// INVALID_ARGUMENT if a flag of `given` asks for an output that evaluations do not have, or if no
// flag says what to evaluate. `notes` gets one line that names the flags that only training uses.
// Pure.
absl::Status CheckEvaluationFlags(const std::vector<std::string>& given,
                                  std::vector<std::string>* notes);

// Removes everything from the options that belongs to training. INVALID_ARGUMENT for tensor
// parallelism and for --parallel auto, which do not support evaluation.
absl::Status MakeEvaluation(TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_EVALUATION_FLAGS_H_
