// The lock that makes a daemon the only one at its socket, and counts the daemons started there.
#ifndef GEMINID_DAEMON_OS_FILE_LOCK_H_
#define GEMINID_DAEMON_OS_FILE_LOCK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::os {

// Holds flock() on a file until destroyed. The file is never unlinked while the lock may be
// contended: a lock on an unlinked file excludes nobody. Its text is "pid N epoch M".
class FileLock {
 public:
  // UNAVAILABLE, naming the holder's pid if it wrote one, when another process holds the lock.
  // FAILED_PRECONDITION when the path is no regular file.
  static absl::StatusOr<FileLock> Acquire(const std::string& path);

  // How many times the lock was taken on this file, this time included.
  uint64_t epoch() const { return epoch_; }

 private:
  FileLock(base::UniqueFd fd, uint64_t epoch) : fd_(std::move(fd)), epoch_(epoch) {}

  base::UniqueFd fd_;
  uint64_t epoch_;
};

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_FILE_LOCK_H_
