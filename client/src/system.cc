#include "client/src/system.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace geminid {

absl::Status SystemError(const char* call, const std::string& detail) {
  const int error = errno;
  const std::string text = absl::StrCat(call, ": ", detail, ": ", std::strerror(error));
  switch (error) {
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case ENOENT:
      return absl::NotFoundError(text);
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(text);
    case ECONNREFUSED:
      return absl::UnavailableError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status CheckMappable(const base::UniqueFd& fd, uint64_t bytes) {
  struct stat file = {};
  if (fstat(fd.get(), &file) != 0) return SystemError("fstat", "shared memory");
  if (bytes == 0 || static_cast<uint64_t>(file.st_size) < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory of ", file.st_size, " bytes where ", bytes, " were announced"));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("shared memory that is not sealed against shrinking");
  }
  return absl::OkStatus();
}

absl::StatusOr<Mapping> Mapping::Map(const base::UniqueFd& fd, uint64_t bytes, Access access) {
  if (absl::Status file = CheckMappable(fd, bytes); !file.ok()) return file;
  const bool writable = access == Access::kReadWrite;
  void* address =
      mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    return SystemError("mmap", absl::StrCat(bytes, " bytes of shared memory"));
  }
  madvise(address, bytes, MADV_DONTFORK);
  // The pages are there: no later step shall pay for its first touch. Kernels that do not know the
  // advice lose only that.
  madvise(address, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
  return Mapping(static_cast<std::byte*>(address), bytes);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace geminid
