// Puts the flag that an error is about before the message of the error.
#ifndef GEMINID_TRAINING_SETTINGS_FLAG_WORDS_H_
#define GEMINID_TRAINING_SETTINGS_FLAG_WORDS_H_

#include <string>

#include "absl/status/status.h"

namespace geminid::trainer {

// The status with the flag, and perhaps its value, before its words. Words that begin with a flag
// stay, and so does OK.
absl::Status WithFlag(const std::string& flag, const absl::Status& status);

// The same for the flag of a path, which is said once: "--load r2: it is not a folder".
absl::Status WithPath(const std::string& flag, const std::string& path, const absl::Status& status);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_FLAG_WORDS_H_
