// Messages of the holder's protocol over a connected SOCK_SEQPACKET socket. No library but libc.
#ifndef GEMINID_DAEMON_HOLDER_CHANNEL_H_
#define GEMINID_DAEMON_HOLDER_CHANNEL_H_

#include "base/unique_fd.h"
#include "daemon/holder/protocol.h"

namespace geminid::holder {

// Sends one message, with `descriptor` unless it is negative. Waits for room as long as the
// socket's SO_SNDTIMEO says. 0, or an errno.
int Send(const base::UniqueFd& socket, const Message& message, int descriptor = -1);

struct ReceivedMessage {
  enum class Kind { kMessage, kOtherVersion, kNonsense, kNothing, kEnd };
  Kind kind = Kind::kEnd;
  Message message{};
  uint16_t version = 0;         // of kOtherVersion
  base::UniqueFd descriptor{};  // the first that came; others are closed
};

// The next message. On a blocking socket, waits for it as long as its SO_RCVTIMEO says; then
// kNothing.
ReceivedMessage Receive(const base::UniqueFd& socket);

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_CHANNEL_H_
