// Finds the files that a path of --text or --shards names.
#ifndef GEMINID_TRAINING_DATA_DATA_FILES_H_
#define GEMINID_TRAINING_DATA_DATA_FILES_H_

#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::trainer {

// Words for messages about the data.
struct DataWords {
  const char* flag;   // "--text"
  const char* what;   // "text"
  const char* files;  // "text files"
};

struct DataPaths {
  std::vector<std::string> files;
  std::vector<std::string> left_out;  // "'d/more': the folder was read as 'd/a'", for people
};

// For each path: the file itself, or all regular files below a directory whose names end with
// `suffix`, sorted by path. Names that begin with a dot are ignored. Links are followed. A file or
// directory that was already read is left out and appears in `left_out`. NOT_FOUND,
// PERMISSION_DENIED and INVALID_ARGUMENT name the path and say what to do. A link that leads
// nowhere, or to a directory that contains it, is also an error.
absl::StatusOr<DataPaths> FindDataFiles(const std::vector<std::string>& paths,
                                        const DataWords& words, const std::string& suffix);

absl::Status DataPathError(const DataWords& words, const std::string& path,
                           const std::error_code& error);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_DATA_FILES_H_
