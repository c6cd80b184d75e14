#include "daemon/os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "daemon/os/sys.h"

namespace geminid::os {
namespace {

// linux/memfd.h of Linux 6.3; older headers lack it, older kernels answer EINVAL.
constexpr unsigned kNoExecSeal = 0x0008u;
constexpr mode_t kOwnerOnly = 0600;

int CreateMemfd(const std::string& name, unsigned flags) {
  const int fd = ::memfd_create(name.c_str(), flags | kNoExecSeal);
  if (fd >= 0 || errno != EINVAL) return fd;
  return ::memfd_create(name.c_str(), flags);
}

}  // namespace

absl::StatusOr<base::UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes,
                                                 bool huge_pages) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge_pages ? MFD_HUGETLB : 0u);
  base::UniqueFd fd(CreateMemfd(name, flags));
  if (!fd.valid()) return ErrnoError(errno, "memfd_create", name);
  if (::fchmod(fd.get(), kOwnerOnly) != 0) return ErrnoError(errno, "fchmod", name);
  if (RetryOnEintr([&] { return ::ftruncate(fd.get(), static_cast<off_t>(bytes)); }) != 0) {
    return ErrnoError(errno, "ftruncate", absl::StrCat(name, " of ", bytes, " bytes"));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError(errno, "fcntl(F_ADD_SEALS)", name);
  }
  return fd;
}

absl::StatusOr<base::UniqueFd> ReopenReadOnly(const base::UniqueFd& memfd) {
  const std::string path = absl::StrCat("/proc/self/fd/", memfd.get());
  base::UniqueFd fd(RetryOnEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!fd.valid()) return ErrnoError(errno, "open", path);
  return fd;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

absl::StatusOr<Mapping> Mapping::Map(const base::UniqueFd& fd, uint64_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoError(errno, "mmap", absl::StrCat(bytes, " bytes"));
  ::madvise(data, bytes, MADV_DONTFORK);  // only a saving: a failure changes nothing
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.bytes_ = bytes;
  return mapping;
}

}  // namespace geminid::os
