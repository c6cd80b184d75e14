// A file descriptor that closes itself.
#ifndef GEMINID_COLLECTIVES_UNIQUE_FD_H_
#define GEMINID_COLLECTIVES_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace geminid::collectives {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_UNIQUE_FD_H_
