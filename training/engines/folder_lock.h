// A lock on a folder of checkpoints, so that two runs do not write to it at once.
#ifndef GEMINID_TRAINING_ENGINES_FOLDER_LOCK_H_
#define GEMINID_TRAINING_ENGINES_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::trainer {

// The lock is on a file in the folder. The kernel releases it when the process ends, however it
// ends. The file stays, because a lock on a file that another process may delete protects nothing.
class FolderLock {
 public:
  // FAILED_PRECONDITION if another process has the lock; the error names it. If the file system has
  // no locks, the folder is taken without one, and without_lock() has the reason.
  static absl::StatusOr<FolderLock> Take(const std::string& folder);

  // Empty: the folder is locked.
  const std::string& without_lock() const { return without_lock_; }

 private:
  FolderLock(base::UniqueFd fd, std::string without_lock)
      : fd_(std::move(fd)), without_lock_(std::move(without_lock)) {}

  base::UniqueFd fd_;
  std::string without_lock_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_FOLDER_LOCK_H_
