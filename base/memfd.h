// Anonymous memory as a file descriptor.
#ifndef GEMINID_BASE_MEMFD_H_
#define GEMINID_BASE_MEMFD_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::base {

// A memfd of exactly `bytes` zero bytes, mode 0600, close-on-exec, not executable where the kernel
// knows how, sealed against growing, shrinking and further seals: whoever receives it can never
// make a mapping of it fault by truncation. Pages come when touched. `huge_pages`: from the
// reserved huge pages; `bytes` must be a multiple of their size.
absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes,
                                           bool huge_pages = false);

// The same, but not sealed against shrinking: Revoke() can take the memory back from everybody who
// has a descriptor or a mapping of it, and nobody can ever make it larger again. Whoever maps it
// must expect SIGBUS after that.
absl::StatusOr<UniqueFd> CreateRevocableMemfd(const std::string& name, uint64_t bytes,
                                              bool huge_pages = false);

// A memfd of exactly these bytes, sealed against writing too: whoever has it reads what was written
// here. It cannot be mapped writable.
absl::StatusOr<UniqueFd> CreateWrittenMemfd(const std::string& name, std::string_view contents);
// All of a file of at most `max_bytes`; INVALID_ARGUMENT where it has more.
absl::StatusOr<std::string> ReadMemfd(const UniqueFd& memfd, uint64_t max_bytes);

// Gives every page of a revocable memfd back to the kernel. From the return on, no write, fault or
// fallocate by anybody can bring one back. Takes about 50 ms/GiB.
absl::Status Revoke(const UniqueFd& memfd);

// Another descriptor for the same memory, which cannot be mapped writable.
absl::StatusOr<UniqueFd> ReopenReadOnly(const UniqueFd& memfd);

// OK when the file behind `fd`, which may be another process's, holds `bytes` and can never hold
// fewer: a mapping of anything else could kill this process. INVALID_ARGUMENT otherwise.
absl::Status CheckSealed(const UniqueFd& fd, uint64_t bytes);
// OK when it holds `bytes` and can never hold more.
absl::Status CheckRevocable(const UniqueFd& fd, uint64_t bytes);

}  // namespace geminid::base

#endif  // GEMINID_BASE_MEMFD_H_
