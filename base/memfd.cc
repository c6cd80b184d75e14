#include "base/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

absl::StatusOr<UniqueFd> Create(const std::string& name, uint64_t bytes, bool huge_pages,
                                int seals) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0u);
  UniqueFd fd(NewMemfd(name, flags));
  if (!fd.valid()) return SystemError(errno, "memfd_create", name);
  if (::fchmod(fd.get(), kOwnerOnly) != 0) return SystemError(errno, "fchmod", name);
  if (RetryOnEintr([&] { return ::ftruncate(fd.get(), static_cast<off_t>(bytes)); }) != 0) {
    return SystemError(errno, "ftruncate", absl::StrCat(name, " of ", bytes, " bytes"));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, seals) != 0) {
    return SystemError(errno, "fcntl(F_ADD_SEALS)", name);
  }
  return fd;
}

absl::Status CheckSeal(const UniqueFd& fd, uint64_t bytes, int seal, const char* against) {
  struct stat file = {};
  if (::fstat(fd.get(), &file) != 0) return SystemError(errno, "fstat", "shared memory");
  if (bytes == 0 || static_cast<uint64_t>(file.st_size) < bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the shared memory has ", file.st_size,
                                                   " bytes; its sender announced ", bytes));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & seal) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shared memory is not sealed against ", against));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes,
                                           bool huge_pages) {
  return Create(name, bytes, huge_pages, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

absl::StatusOr<UniqueFd> CreateRevocableMemfd(const std::string& name, uint64_t bytes,
                                              bool huge_pages) {
  return Create(name, bytes, huge_pages, F_SEAL_GROW | F_SEAL_SEAL);
}

absl::StatusOr<UniqueFd> CreateWrittenMemfd(const std::string& name, std::string_view contents) {
  UniqueFd fd(NewMemfd(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return SystemError(errno, "memfd_create", name);
  if (::fchmod(fd.get(), kOwnerOnly) != 0) return SystemError(errno, "fchmod", name);
  while (!contents.empty()) {
    const ssize_t wrote =
        RetryOnEintr([&] { return ::write(fd.get(), contents.data(), contents.size()); });
    if (wrote < 0) return SystemError(errno, "write", name);
    contents.remove_prefix(static_cast<size_t>(wrote));
  }
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return SystemError(errno, "fcntl(F_ADD_SEALS)", name);
  }
  return fd;
}

absl::StatusOr<std::string> ReadMemfd(const UniqueFd& memfd, uint64_t max_bytes) {
  struct stat file = {};
  if (::fstat(memfd.get(), &file) != 0) return SystemError(errno, "fstat", "retained memory");
  const auto size = static_cast<uint64_t>(file.st_size);
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory has ", size, " bytes; at most ", max_bytes, " are allowed"));
  }
  std::string contents(size, 0);
  size_t got = 0;
  while (got < size) {
    const ssize_t read = RetryOnEintr([&] {
      return ::pread(memfd.get(), contents.data() + got, size - got, static_cast<off_t>(got));
    });
    if (read < 0) return SystemError(errno, "pread", "retained memory");
    if (read == 0) break;  // the file became smaller meanwhile
    got += static_cast<size_t>(read);
  }
  contents.resize(got);
  return contents;
}

absl::Status Revoke(const UniqueFd& memfd) {
  // The kernel lowers the size before it drops the pages: a fault in between finds no page there.
  if (RetryOnEintr([&] { return ::ftruncate(memfd.get(), 0); }) == 0) return absl::OkStatus();
  return SystemError(errno, "ftruncate", "taking shared memory back");
}

absl::StatusOr<UniqueFd> ReopenReadOnly(const UniqueFd& memfd) {
  const std::string path = absl::StrCat("/proc/self/fd/", memfd.get());
  UniqueFd fd(RetryOnEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!fd.valid()) return SystemError(errno, "open", path);
  return fd;
}

absl::Status CheckSealed(const UniqueFd& fd, uint64_t bytes) {
  return CheckSeal(fd, bytes, F_SEAL_SHRINK, "shrinking");
}

absl::Status CheckRevocable(const UniqueFd& fd, uint64_t bytes) {
  return CheckSeal(fd, bytes, F_SEAL_GROW, "growing");
}

}  // namespace geminid::base
