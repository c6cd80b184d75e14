#include "training/engines/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/system_error.h"

namespace geminid::trainer {
namespace {

constexpr char kLockName[] = ".geminid-lock";
constexpr mode_t kWritableByGroup = 0664;
constexpr size_t kHolderBytesMax = 512;

std::string ThisProcess() {
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return absl::StrCat("pid ", ::getpid(), " on ", host.data());
}

// NFS without a lock service, Lustre without -o flock, FUSE without locks.
bool HasNoLocks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kLockName);
  // What it says is overwritten: a link could lead to any file of this user.
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  base::UniqueFd fd(
      base::RetryOnEintr([&] { return ::open(path.c_str(), kFlags, kWritableByGroup); }));
  struct stat about = {};
  if (!fd.valid() && errno != ELOOP) return base::SystemError(errno, "open", path);
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", path,
        "' is not a file that a run made; remove it, and save in a folder in which only "
        "you may rename"));
  }
  if (base::RetryOnEintr([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
    const int error = errno;
    if (HasNoLocks(error)) return FolderLock(std::move(fd), std::strerror(error));
    if (error != EWOULDBLOCK) return base::SystemError(error, "lock", path);
    const absl::StatusOr<std::string> holder = base::ReadFile(path, kHolderBytesMax);
    return absl::FailedPreconditionError(
        absl::StrCat("'", folder, "' is in use by another run",
                     holder.ok() && !holder->empty() ? absl::StrCat(" (", *holder, ")") : "",
                     "; wait for its end, or give another folder"));
  }
  // For the words of whoever comes second; nothing depends on them.
  const std::string words = ThisProcess();
  if (::ftruncate(fd.get(), 0) == 0) (void)!::pwrite(fd.get(), words.data(), words.size(), 0);
  return FolderLock(std::move(fd), "");
}

}  // namespace geminid::trainer
