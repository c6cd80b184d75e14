// A rank's connection to the coordinator: sends and receives frames.
#ifndef GEMINID_COLLECTIVES_TCP_COORDINATOR_LINE_H_
#define GEMINID_COLLECTIVES_TCP_COORDINATOR_LINE_H_

#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "collectives/tcp/frame.h"

namespace geminid::collectives {

// Any thread may send; one thread receives.
class CoordinatorLine {
 public:
  explicit CoordinatorLine(base::UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  // Blocks until the system has accepted all of it. INVALID_ARGUMENT if the frame is too long.
  absl::Status Send(const Frame& frame);
  // Says that this rank lives, unless other bytes in flight say so. Does not block for long.
  void SendBeat(int rank);
  // Appends the complete frames that have come, without waiting. False: the other side has closed,
  // or its data is invalid.
  bool Receive(std::vector<Frame>* frames);
  // Closes the connection. If the other side still lives, it learns that it was taken for dead.
  void HangUp();

 private:
  base::UniqueFd socket_;
  FrameReader reader_;
  std::mutex send_mutex_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_COORDINATOR_LINE_H_
