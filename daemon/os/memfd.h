// Anonymous memory as a file descriptor: sealed memfds and their mappings.
#ifndef GEMINID_DAEMON_OS_MEMFD_H_
#define GEMINID_DAEMON_OS_MEMFD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::os {

// A memfd of exactly `bytes` zero bytes (a multiple of the page size), mode 0600, close-on-exec,
// not executable where the kernel knows how, sealed against growing, shrinking and further seals:
// whoever receives it can never make a mapping of it fault by truncation. Pages come when touched.
// `huge_pages`: from the reserved huge pages; `bytes` must be a multiple of their size.
absl::StatusOr<base::UniqueFd> CreateSealedMemfd(const std::string& name, uint64_t bytes,
                                                 bool huge_pages = false);

// Another descriptor for the same memory, which cannot be mapped writable.
absl::StatusOr<base::UniqueFd> ReopenReadOnly(const base::UniqueFd& memfd);

// A shared mapping, unmapped at the end of its life. Forked children do not inherit it.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Maps the first `bytes` of `fd` for reading and writing.
  static absl::StatusOr<Mapping> Map(const base::UniqueFd& fd, uint64_t bytes);

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_MEMFD_H_
