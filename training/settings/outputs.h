// Checks before the first step that a run can write all its outputs.
#ifndef GEMINID_TRAINING_SETTINGS_OUTPUTS_H_
#define GEMINID_TRAINING_SETTINGS_OUTPUTS_H_

#include <string>

#include "absl/status/status.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The path without slashes and dots at its end: "run/" and "run/." are "run".
std::string WithoutSlashesAtEnd(const std::string& path);

// Whether a file for --report can be made at `path`. It leaves an existing file as it is.
absl::Status CheckWritable(const std::string& path);

// Checks --save, --export, --log, --tensorboard and --report. No two of them, and none of them and
// the data, may have the same path. None may lie where the run would read it as data, and no other
// file may be in the way. It makes, renames and
// removes a file to see whether the run can write there, and leaves nothing behind. `exports`: the
// run will write --export. Errors begin with the flag and the path.
absl::Status CheckOutputs(const TrainOptions& options, bool exports);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_OUTPUTS_H_
