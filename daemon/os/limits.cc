#include "daemon/os/limits.h"

#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::os {
namespace {

// The daemon's own: code, stacks of gRPC's threads, heap.
constexpr uint64_t kOwnAddressSpaceBytes = uint64_t{2} << 30;

uint64_t Raise(__rlimit_resource resource) {
  rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0) return ~uint64_t{0};
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(resource, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
}

absl::Status TooLow(const char* what, uint64_t limit, const char* need, uint64_t bytes,
                    const char* fix) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the limit on ", what, " is ", base::FormatBytes(limit), ", and ", need, " ",
      base::FormatBytes(bytes), "; lift it (", fix, "), or hand out less memory (--host-memory)"));
}

}  // namespace

Limits RaiseLimits() {
  // A session costs about eight descriptors; the soft limit of 1024 is for select(2), not for us.
  Raise(RLIMIT_NOFILE);
  return {.file_bytes = Raise(RLIMIT_FSIZE), .address_space_bytes = Raise(RLIMIT_AS)};
}

absl::Status CheckLimits(const Limits& limits, uint64_t file_bytes, uint64_t total_bytes) {
  if (limits.file_bytes < file_bytes) {
    return TooLow("the size of a file", limits.file_bytes,
                  "the memory that is handed out are files of up to", file_bytes,
                  "ulimit -f unlimited, LimitFSIZE=infinity");
  }
  const uint64_t most = ~uint64_t{0} - kOwnAddressSpaceBytes;
  const uint64_t needed = total_bytes > most ? ~uint64_t{0} : total_bytes + kOwnAddressSpaceBytes;
  if (limits.address_space_bytes < needed) {
    return TooLow("address space", limits.address_space_bytes,
                  "the daemon maps what it hands out and needs", needed,
                  "ulimit -v unlimited, LimitAS=infinity");
  }
  return absl::OkStatus();
}

}  // namespace geminid::os
