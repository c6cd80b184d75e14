// Messages between two ranks over their channel in the shared segment.
#ifndef GEMINID_COLLECTIVES_SHM_SHM_MESSAGES_H_
#define GEMINID_COLLECTIVES_SHM_SHM_MESSAGES_H_

#include <cstddef>

#include "absl/status/status.h"
#include "collectives/operation.h"
#include "collectives/shm/shm_group.h"

namespace geminid::collectives {

// Both ends move pieces when they can and never block; if neither can, the caller sleeps on its
// doorbell. A message without bytes is one empty piece, which carries the label.

class MessageSender {
 public:
  MessageSender(ShmGroup* group, int peer, const Operation& operation, const std::byte* data);
  bool done() const { return pieces_left_ == 0; }
  int peer() const { return peer_; }
  bool Step();  // true if it moved a piece

 private:
  ShmGroup* const group_;
  const int peer_;
  const Operation operation_;
  const std::byte* data_;
  size_t bytes_left_;
  size_t pieces_left_;
  bool first_ = true;
};

class MessageReceiver {
 public:
  MessageReceiver(ShmGroup* group, int peer, const Operation& operation, std::byte* data);
  bool done() const { return pieces_left_ == 0; }
  int peer() const { return peer_; }
  // Sets `mismatch` if the message is not the expected one.
  bool Step(absl::Status* mismatch);

 private:
  ShmGroup* const group_;
  const int peer_;
  const Operation operation_;
  std::byte* data_;
  size_t bytes_left_;
  size_t pieces_left_;
  bool first_ = true;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SHM_MESSAGES_H_
