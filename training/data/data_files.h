// Finds the files that a path of --text or --shards names.
#ifndef GEMINID_TRAINING_DATA_DATA_FILES_H_
#define GEMINID_TRAINING_DATA_DATA_FILES_H_

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

struct DataPaths {
  std::vector<std::string> files;
  std::vector<std::string> left_out;  // "'d/more': the folder was read as 'd/a'", for people
};

// For each path in turn the file itself, or all regular files below a directory whose names end
// with `suffix`, sorted by path. Names that begin with a dot are passed over. Links are followed; a
// file or directory that was read already is left out, and said. NOT_FOUND, PERMISSION_DENIED or
// INVALID_ARGUMENT say which path and what to do: also a link that leads nowhere, or to a directory
// that holds it.
absl::StatusOr<DataPaths> FindDataFiles(const std::vector<std::string>& paths,
                                        const DataWords& words, const std::string& suffix);

absl::Status DataPathError(const DataWords& words, const std::string& path,
                           const std::error_code& error);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_DATA_FILES_H_
