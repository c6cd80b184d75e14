// Chooses a checkpoint of a folder.
#ifndef GEMINID_CLIENT_CHECKPOINT_NEWEST_H_
#define GEMINID_CLIENT_CHECKPOINT_NEWEST_H_

#include <string>

#include "absl/status/statusor.h"

namespace geminid::checkpoint {

// Whether the checkpoint's record says that it is healthy. True if the record cannot be read:
// loading that checkpoint then says why.
bool IsHealthy(const std::string& checkpoint);

struct ChosenCheckpoint {
  std::string path;
  std::string passed_over;  // a newer checkpoint that is not healthy; empty: none
};
// The folder itself if it is a checkpoint; else its newest healthy checkpoint, or its newest if
// none is healthy. NOT_FOUND if it has none.
absl::StatusOr<ChosenCheckpoint> ChooseNewest(const std::string& folder);

// The folder that has the values: the folder itself, or its chosen checkpoint.
absl::StatusOr<std::string> FolderOfValues(const std::string& folder);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_NEWEST_H_
