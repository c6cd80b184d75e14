// System calls' failures in words, and mappings that unmap themselves.
#ifndef GEMINID_CLIENT_SRC_SYSTEM_H_
#define GEMINID_CLIENT_SRC_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid {

// From errno: the call, what it was done to, and the system's words.
absl::Status SystemError(const char* call, const std::string& detail);

// OK when the file behind `fd` holds `bytes` and can never hold fewer: a mapping of anything else
// could kill this process. INVALID_ARGUMENT otherwise.
absl::Status CheckMappable(const base::UniqueFd& fd, uint64_t bytes);

// A shared mapping that forked children do not inherit.
class Mapping {
 public:
  enum class Access { kRead, kReadWrite };

  Mapping() = default;
  static absl::StatusOr<Mapping> Map(const base::UniqueFd& fd, uint64_t bytes, Access access);
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_SYSTEM_H_
