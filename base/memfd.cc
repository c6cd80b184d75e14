#include "base/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/system_error.h"

namespace geminid::base {
namespace {

constexpr mode_t kOwnerOnly = 0600;

int NewMemfd(const std::string& name, unsigned flags) {
  constexpr unsigned kNoExecSeal = 0x0008u;  // MFD_NOEXEC_SEAL of Linux 6.3
  const int fd = ::memfd_create(name.c_str(), flags | kNoExecSeal);
  if (fd >= 0 || errno != EINVAL) return fd;
  return ::memfd_create(name.c_str(), flags);
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes,
                                           bool huge_pages) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0u);
  UniqueFd fd(NewMemfd(name, flags));
  if (!fd.valid()) return SystemError(errno, "memfd_create", name);
  if (::fchmod(fd.get(), kOwnerOnly) != 0) return SystemError(errno, "fchmod", name);
  if (RetryOnEintr([&] { return ::ftruncate(fd.get(), static_cast<off_t>(bytes)); }) != 0) {
    return SystemError(errno, "ftruncate", absl::StrCat(name, " of ", bytes, " bytes"));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError(errno, "fcntl(F_ADD_SEALS)", name);
  }
  return fd;
}

absl::StatusOr<UniqueFd> ReopenReadOnly(const UniqueFd& memfd) {
  const std::string path = absl::StrCat("/proc/self/fd/", memfd.get());
  UniqueFd fd(RetryOnEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!fd.valid()) return SystemError(errno, "open", path);
  return fd;
}

absl::Status CheckSealed(const UniqueFd& fd, uint64_t bytes) {
  struct stat file = {};
  if (::fstat(fd.get(), &file) != 0) return SystemError(errno, "fstat", "shared memory");
  if (bytes == 0 || static_cast<uint64_t>(file.st_size) < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory of ", file.st_size, " bytes where ", bytes, " were announced"));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("shared memory that is not sealed against shrinking");
  }
  return absl::OkStatus();
}

}  // namespace geminid::base
