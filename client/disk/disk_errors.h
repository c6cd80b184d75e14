// What failed calls on files of a disk mean, and what to do then.
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

// ENOSPC, EDQUOT and EFBIG are RESOURCE_EXHAUSTED; EIO of a read is DATA_LOSS; the rest is as of
// base::SystemError.
absl::Status DiskError(int error, const FailedCall& failed);

// A read that found the end of the file. DATA_LOSS.
absl::Status TruncatedError(const FailedCall& failed);

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_DISK_ERRORS_H_
