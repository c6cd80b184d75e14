// A saver's folder: has one checkpoint per step. A checkpoint appears and disappears atomically.
#ifndef GEMINID_CLIENT_CHECKPOINT_FOLDER_H_
#define GEMINID_CLIENT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::checkpoint {

// "step-000000020", and the name while it is being written.
std::string NameOfStep(uint64_t step);
std::string UnfinishedNameOfStep(uint64_t step);

// Creates the folder and its parents.
absl::Status MakeFolder(const std::string& path);

// Opens a file to write. Neither its folder nor the file may be a symbolic link: a user who may
// rename in a folder of checkpoints could otherwise redirect this process to other files. Links
// further up the path are allowed. `flags` are those of open.
absl::StatusOr<base::UniqueFd> OpenWithoutLinks(const std::string& path, int flags);

// Writes a new small file, likewise without links, and syncs it.
absl::Status WriteNewFile(const std::string& path, const std::string& text);

// The names of the finished checkpoints, newest last.
absl::StatusOr<std::vector<std::string>> FinishedIn(const std::string& folder);

// Creates an empty folder for the step, and removes what an interrupted save may have left of it.
absl::Status BeginStep(const std::string& folder, uint64_t step);

// The same for a folder of any name, which must not exist (ALREADY_EXISTS). Returns where to write.
absl::StatusOr<std::string> BeginFolder(const std::string& path);
absl::Status FinishFolder(const std::string& path);
void AbandonFolder(const std::string& path);

// Renames the unfinished checkpoint to its final name. If something else has that name, it is
// removed, or it becomes NAME.kept. Everything in the checkpoint must be synced. After a crash the
// old or the new one is there, complete.
enum class OldCheckpoint { kIsRemoved, kIsKept };
absl::Status FinishStep(const std::string& folder, uint64_t step, OldCheckpoint older);

// Removes the folder that BeginStep created.
void AbandonStep(const std::string& folder, uint64_t step);

// A finished checkpoint, as ToPrune needs it.
struct FinishedCheckpoint {
  std::string name;
  bool healthy = true;
};

// The checkpoints of `in_order`, first candidates first, to remove so that the last `keep` of them
// and the last healthy one stay. None if `keep` is 0. Pure.
std::vector<std::string> ToPrune(const std::vector<FinishedCheckpoint>& in_order, uint64_t keep);

// Removes checkpoints, each atomically, and the remains of interrupted removals.
absl::Status RemoveCheckpoints(const std::string& folder, const std::vector<std::string>& names);

// Renames all finished checkpoints to NAME.replaced, so that they no longer count as finished.
// RemoveCheckpoints removes these too.
absl::Status SetAside(const std::string& folder);

// Removes the remains of interrupted saves. Only while nothing else saves in the folder.
absl::Status RemoveUnfinished(const std::string& folder);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_FOLDER_H_
