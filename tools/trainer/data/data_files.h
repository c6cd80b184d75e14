// The files that a path of data names.
#ifndef GEMINID_TOOLS_TRAINER_DATA_DATA_FILES_H_
#define GEMINID_TOOLS_TRAINER_DATA_DATA_FILES_H_

#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::trainer {

// How messages call what is looked for.
struct DataWords {
  const char* flag;   // "--text"
  const char* what;   // "text"
  const char* files;  // "text files"
};

// The file itself, or all regular files below a directory whose names end with `suffix`, sorted by
// path; names that begin with a dot are passed over. NOT_FOUND, PERMISSION_DENIED or
// INVALID_ARGUMENT say which path and what to do.
absl::StatusOr<std::vector<std::string>> FindDataFiles(const std::string& path,
                                                       const DataWords& words,
                                                       const std::string& suffix);

absl::Status DataPathError(const DataWords& words, const std::string& path,
                           const std::error_code& error);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_DATA_DATA_FILES_H_
