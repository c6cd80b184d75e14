// The attach socket: says Hello, receives the session's descriptors, and later those of memory.
#ifndef GEMINID_CLIENT_SRC_ATTACH_H_
#define GEMINID_CLIENT_SRC_ATTACH_H_

#include <array>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "proto/shm/attach_messages.h"

namespace geminid {

struct ReceivedWelcome {
  shm::Welcome message;
  std::array<base::UniqueFd, shm::kWelcomeFds> fds;
  base::UniqueFd& fd(shm::WelcomeFd which) { return fds[static_cast<int>(which)]; }
};

struct ReceivedMemory {
  shm::Memory message;
  base::UniqueFd fd;
};

// Move-only. Used by one thread at a time.
class AttachSocket {
 public:
  AttachSocket() = default;

  // UNAVAILABLE if no daemon listens for `socket`; the message says how to start one. `timeout`
  // bounds this call and each later wait.
  static absl::StatusOr<AttachSocket> Connect(const std::string& socket, absl::Duration timeout);

  // If the daemon refuses, returns its status and message.
  absl::StatusOr<ReceivedWelcome> SayHello(const shm::Hello& hello);

  // The next Memory message. The daemon sends it before it answers the call for that memory.
  absl::StatusOr<ReceivedMemory> ReceiveMemory();
  // Whether another message has arrived already.
  bool HasMemory() const;

  int fd() const { return fd_.get(); }
  // The daemon was there, and closed the connection before it answered.
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

// Copies `text` into a zero-terminated field. INVALID_ARGUMENT, naming `what`, if it is too long.
absl::Status CopyName(const std::string& text, const char* what, char (&field)[shm::kNameBytes]);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_ATTACH_H_
