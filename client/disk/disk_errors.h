// Converts failed calls on files of a disk to statuses that say what to do.
#ifndef GEMINID_CLIENT_DISK_DISK_ERRORS_H_
#define GEMINID_CLIENT_DISK_DISK_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace geminid::disk {

struct FailedCall {
  std::string call;  // "write"
  std::string path;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// RESOURCE_EXHAUSTED for ENOSPC, EDQUOT and EFBIG; DATA_LOSS for a read's EIO; otherwise as
// base::SystemError.
absl::Status DiskError(int error, const FailedCall& failed);

// DATA_LOSS: a read found the end of the file.
absl::Status TruncatedError(const FailedCall& failed);

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_DISK_ERRORS_H_
