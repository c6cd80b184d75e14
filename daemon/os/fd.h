// A file descriptor and who closes it.
#ifndef GEMINID_DAEMON_OS_FD_H_
#define GEMINID_DAEMON_OS_FD_H_

#include <unistd.h>

#include <utility>

namespace geminid::os {

// Owns one descriptor, or none (-1). Closes it when it goes out of scope.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    // Linux closes the descriptor even when close() says EINTR: never close again.
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_FD_H_
