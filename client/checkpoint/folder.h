// A saver's folder: checkpoints by step, and how one appears and goes in one instant.
#ifndef GEMINID_CLIENT_CHECKPOINT_FOLDER_H_
#define GEMINID_CLIENT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::checkpoint {

// "step-000000020", and where it is written before it has that name.
std::string NameOfStep(uint64_t step);
std::string UnfinishedNameOfStep(uint64_t step);

// Makes the folder and those above it.
absl::Status MakeFolder(const std::string& path);

// A file to write, at a path of which neither the last folder nor the file may be a link: whoever
// may rename in a folder of checkpoints could lead the writer into other files of its user. Links
// further up are the user's own. `flags` are those of open.
absl::StatusOr<base::UniqueFd> OpenWithoutLinks(const std::string& path, int flags);

// A new small file, likewise, synced.
absl::Status WriteNewFile(const std::string& path, const std::string& text);

// The names of the finished checkpoints, the newest last.
absl::StatusOr<std::vector<std::string>> FinishedIn(const std::string& folder);

// An empty folder for the step, in place of what an interrupted save may have left.
absl::Status BeginStep(const std::string& folder, uint64_t step);

// The same for a folder of any name, which must not exist: ALREADY_EXISTS. Where to write.
absl::StatusOr<std::string> BeginFolder(const std::string& path);
absl::Status FinishFolder(const std::string& path);
void AbandonFolder(const std::string& path);

// Gives the unfinished checkpoint its name, in place of one of the same step, when everything in it
// is synced. After it the old or the new one is there, whole.
absl::Status FinishStep(const std::string& folder, uint64_t step);

// Removes what BeginStep made.
void AbandonStep(const std::string& folder, uint64_t step);

// A finished checkpoint, as pruning sees it.
struct FinishedCheckpoint {
  std::string name;
  bool healthy = true;
};

// Which of `in_order`, the first to go first, may be removed so that the last `keep` of them stay,
// and the last healthy one too. None with a `keep` of 0. Pure.
std::vector<std::string> ToPrune(const std::vector<FinishedCheckpoint>& in_order, uint64_t keep);

// Removes checkpoints, each in one instant, and what interrupted removals left.
absl::Status RemoveCheckpoints(const std::string& folder, const std::vector<std::string>& names);

// Renames all finished checkpoints, so that they are none any more, to NAME.replaced:
// RemoveCheckpoints removes these too.
absl::Status SetAside(const std::string& folder);

// Removes what interrupted saves left. Only where nobody else saves in the folder.
absl::Status RemoveUnfinished(const std::string& folder);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_FOLDER_H_
