#include "daemon/os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace geminid::os {
namespace {

// A process that can open the file, even for reading only, can lock it and block the next daemon.
constexpr mode_t kLockMode = 0600;
constexpr size_t kTextBytes = 64;

struct Holder {
  int64_t pid = 0;
  uint64_t epoch = 0;
};

// A file with another text counts as empty.
Holder ReadHolder(const base::UniqueFd& fd) {
  char text[kTextBytes] = {};
  Holder holder;
  if (base::RetryOnEintr([&] { return ::pread(fd.get(), text, sizeof(text) - 1, 0); }) <= 0)
    return {};
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): too large is no process either
  if (std::sscanf(text, "pid %" SCNd64 " epoch %" SCNu64, &holder.pid, &holder.epoch) != 2) {
    return {};
  }
  return holder;
}

absl::Status WriteHolder(const base::UniqueFd& fd, uint64_t epoch, const std::string& path) {
  const std::string text = absl::StrCat("pid ", ::getpid(), " epoch ", epoch, "\n");
  if (base::RetryOnEintr([&] { return ::pwrite(fd.get(), text.data(), text.size(), 0); }) !=
          static_cast<ssize_t>(text.size()) ||
      ::ftruncate(fd.get(), static_cast<off_t>(text.size())) != 0) {
    return base::SystemError(errno, "write", path);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  base::UniqueFd fd(base::RetryOnEintr([&] { return ::open(path.c_str(), flags, kLockMode); }));
  if (!fd.valid()) {
    const absl::Status failed = base::SystemError(errno, "open", absl::StrCat("lock file ", path));
    return absl::Status(failed.code(),
                        absl::StrCat(std::string(failed.message()),
                                     "; make its folder writable for this user, or choose another "
                                     "--socket"));
  }
  struct stat facts;
  if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("lock file ", path,
                     " is not a regular file; remove it or choose another "
                     "socket"));
  }
  // Takes the access away that an older release gave to others. This fails on another user's file,
  // which could be opened all the same.
  if ((facts.st_mode & 07777) != kLockMode) (void)::fchmod(fd.get(), kLockMode);
  if (base::RetryOnEintr([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno != EWOULDBLOCK) return base::SystemError(errno, "flock", path);
    const Holder holder = ReadHolder(fd);
    return absl::UnavailableError(absl::StrCat(
        "another geminid", holder.pid > 0 ? absl::StrCat(" (pid ", holder.pid, ")") : "",
        " serves this socket: it holds ", path,
        "; stop it first, or start this one with another --socket"));
  }
  const uint64_t epoch = ReadHolder(fd).epoch + 1;
  GEMINID_RETURN_IF_ERROR(WriteHolder(fd, epoch, path));
  return FileLock(std::move(fd), epoch);
}

}  // namespace geminid::os
