// The attach socket: says Hello, gets the session's descriptors, and later those of its memory.
#ifndef GEMINID_CLIENT_SRC_ATTACH_H_
#define GEMINID_CLIENT_SRC_ATTACH_H_

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "proto/shm/attach_messages.h"

namespace geminid {

struct Welcomed {
  shm::Welcome message;
  std::array<base::UniqueFd, shm::kWelcomeFds> fds;
  base::UniqueFd& fd(shm::WelcomeFd which) { return fds[static_cast<int>(which)]; }
};

struct ReceivedMemory {
  shm::Memory message;
  base::UniqueFd fd;
};

// Move-only. One thread at a time.
class AttachSocket {
 public:
  AttachSocket() = default;

  // UNAVAILABLE when no daemon listens for `socket`, saying how to get one. `timeout` bounds this
  // and each later wait.
  static absl::StatusOr<AttachSocket> Connect(const std::string& socket, absl::Duration timeout);

  // A daemon that refuses gives its own status and words.
  absl::StatusOr<Welcomed> SayHello(const shm::Hello& hello);

  // The next Memory message: it was sent before the call that asked for the memory returned.
  absl::StatusOr<ReceivedMemory> ReceiveMemory();
  // There is another message already.
  bool HasMemory() const;

  int fd() const { return fd_.get(); }
  // The daemon was there, and went before it had answered.
  bool hung_up() const { return hung_up_; }

 private:
  AttachSocket(base::UniqueFd fd, std::string socket, absl::Duration timeout)
      : fd_(std::move(fd)), socket_(std::move(socket)), timeout_(timeout) {}

  // Fills `message` exactly and takes at most `max_fds` descriptors.
  absl::StatusOr<size_t> Receive(void* message, size_t bytes, base::UniqueFd* fds, size_t max_fds);
  absl::Status WaitReadable();

  base::UniqueFd fd_;
  std::string socket_;
  absl::Duration timeout_;
  bool hung_up_ = false;
};

// Copies `text` into a zero-terminated field; INVALID_ARGUMENT, naming `what`, when it is too long.
absl::Status CopyName(const std::string& text, const char* what, char (&field)[shm::kNameBytes]);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_ATTACH_H_
