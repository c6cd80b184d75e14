// A file descriptor with an owner that closes it.
#ifndef GEMINID_BASE_UNIQUE_FD_H_
#define GEMINID_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace geminid::base {

// Owns one descriptor, or none (-1). Closes it when it goes out of scope.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { Reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    // Linux closes the descriptor even if close() returns EINTR: never close again.
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_UNIQUE_FD_H_
