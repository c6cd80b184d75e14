// Chooses a checkpoint of a folder.
#ifndef GEMINID_CLIENT_CHECKPOINT_NEWEST_H_
#define GEMINID_CLIENT_CHECKPOINT_NEWEST_H_

#include <string>

#include "absl/status/statusor.h"

namespace geminid::checkpoint {

// Whether the folder is a checkpoint: has a record.
bool HasRecord(const std::string& checkpoint);

// Whether the checkpoint's record says that it is healthy. True if the record cannot be read:
// loading that checkpoint then says why.
bool IsHealthy(const std::string& checkpoint);

struct ChosenCheckpoint {
  std::string path;
  std::string passed_over;     // a newer checkpoint that is not healthy; empty: none
  std::string without_record;  // a newer folder that has no record; empty: none
};
// The folder itself if it is a checkpoint; else its newest healthy checkpoint, or its newest if
// none is healthy. Folders without a record count only where none has one. NOT_FOUND if it has
// none.
absl::StatusOr<ChosenCheckpoint> ChooseNewest(const std::string& folder);

// The newest checkpoint beside this one that is older and healthy, and whose files are all there
// with as many bytes as were written; empty: there is none. Their checksums are not compared.
std::string WholeOneBefore(const std::string& checkpoint);

// The folder that has the values: the folder itself, or its chosen checkpoint.
absl::StatusOr<std::string> FolderOfValues(const std::string& folder);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_NEWEST_H_
