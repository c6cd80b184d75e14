// Shared memory as the daemon makes it.
#ifndef GEMINID_TESTS_CLIENT_MEMORY_FILES_H_
#define GEMINID_TESTS_CLIENT_MEMORY_FILES_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/unique_fd.h"

namespace geminid::testing {

// A memfd of `bytes` zeros, sealed against shrinking unless told otherwise.
inline base::UniqueFd MakeMemoryFile(uint64_t bytes, bool sealed = true) {
  base::UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return {};
  if (sealed) fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

}  // namespace geminid::testing

#endif  // GEMINID_TESTS_CLIENT_MEMORY_FILES_H_
