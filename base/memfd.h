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

// A memfd of exactly `bytes` zero bytes, mode 0600, close-on-exec, and not executable if the kernel
// supports that. Sealed against growing, shrinking and further seals: no receiver can truncate it
// to make another's mapping fault. Pages are allocated when touched. `huge_pages`: from the
// reserved huge pages; `bytes` must be a multiple of their size.
absl::StatusOr<UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes,
                                           bool huge_pages = false);

// The same, but not sealed against shrinking: Revoke() can take the memory back from all processes
// with a descriptor or a mapping of it, and nobody can ever enlarge it again. Processes that map it
// must expect SIGBUS after that.
absl::StatusOr<UniqueFd> CreateRevocableMemfd(const std::string& name, uint64_t bytes,
                                              bool huge_pages = false);

// A memfd with exactly these contents, also sealed against writing: receivers read what was written
// here. It cannot be mapped writable.
absl::StatusOr<UniqueFd> CreateWrittenMemfd(const std::string& name, std::string_view contents);
// Reads the whole file; INVALID_ARGUMENT if it has more than `max_bytes`.
absl::StatusOr<std::string> ReadMemfd(const UniqueFd& memfd, uint64_t max_bytes);

// Returns every page of a revocable memfd to the kernel. After that no write, fault or fallocate of
// any process can bring one back. Takes about 50 ms/GiB.
absl::Status Revoke(const UniqueFd& memfd);

// Another descriptor of the same memory, which cannot be mapped writable.
absl::StatusOr<UniqueFd> ReopenReadOnly(const UniqueFd& memfd);

// OK if the file of `fd`, perhaps another process's, has `bytes` and can never have fewer: a
// mapping of any other file could kill this process. INVALID_ARGUMENT otherwise.
absl::Status CheckSealed(const UniqueFd& fd, uint64_t bytes);
// OK if it has `bytes` and can never have more.
absl::Status CheckRevocable(const UniqueFd& fd, uint64_t bytes);

}  // namespace geminid::base

#endif  // GEMINID_BASE_MEMFD_H_
