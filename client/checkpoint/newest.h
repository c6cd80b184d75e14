// Which checkpoint of a folder is meant.
#ifndef GEMINID_CLIENT_CHECKPOINT_NEWEST_H_
#define GEMINID_CLIENT_CHECKPOINT_NEWEST_H_

#include <string>

#include "absl/status/statusor.h"

namespace geminid::checkpoint {

// What the checkpoint's record says. True for one whose record cannot be read: whoever loads that
// is told why.
bool IsHealthy(const std::string& checkpoint);

struct ChosenCheckpoint {
  std::string path;
  std::string passed_over;  // a newer one, which is not healthy; empty: there is none
};
// The folder itself if it is a checkpoint; else the newest healthy one in it, or the newest if none
// is healthy. NOT_FOUND when there is none.
absl::StatusOr<ChosenCheckpoint> ChooseNewest(const std::string& folder);

// Where values lie: in the folder itself, or in the chosen one of the checkpoints in it.
absl::StatusOr<std::string> FolderOfValues(const std::string& folder);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_NEWEST_H_
