// A rank's connection to the coordinator: frames out and in.
#ifndef GEMINID_COLLECTIVES_TCP_COORDINATOR_LINE_H_
#define GEMINID_COLLECTIVES_TCP_COORDINATOR_LINE_H_

#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "collectives/tcp/frame.h"

namespace geminid::collectives {

// Any thread sends; one receives.
class CoordinatorLine {
 public:
  explicit CoordinatorLine(base::UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  // Blocks until the system has taken all of it. INVALID_ARGUMENT for a frame that is too long.
  absl::Status Send(const Frame& frame);
  // That this rank lives, unless other bytes that are under way say so. Does not block for long.
  void SendBeat(int rank);
  // Appends the frames that have come in whole, without waiting. False: the other side has hung up,
  // or what it sent next makes no sense.
  bool Receive(std::vector<Frame>* frames);
  // Should the other side live, it learns that it has been given up.
  void HangUp();

 private:
  base::UniqueFd socket_;
  FrameReader reader_;
  std::mutex send_mutex_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_COORDINATOR_LINE_H_
