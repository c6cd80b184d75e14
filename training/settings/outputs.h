// Checks before the first step that a run can write everything that it is told to write.
#ifndef GEMINID_TRAINING_SETTINGS_OUTPUTS_H_
#define GEMINID_TRAINING_SETTINGS_OUTPUTS_H_

#include <string>

#include "absl/status/status.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The path without slashes and dots at its end: "run/" and "run/." are "run".
std::string WithoutSlashesAtEnd(const std::string& path);

// Whether a file for --report can be made at `path`, without touching what is there. Asked before
// hours of training.
absl::Status CheckWritable(const std::string& path);

// Looks at --save, --export, --log, --tensorboard and --report: whether two of them, or one and the
// data, are the same path, whether something is in the way, and by making, renaming and removing
// something whether the run can write there. Nothing is left behind. `exports`: --export is still
// to be written. Errors begin with the flag and the path.
absl::Status CheckOutputs(const TrainOptions& options, bool exports);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_OUTPUTS_H_
