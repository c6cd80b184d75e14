#include "collectives/tcp/coordinator_line.h"

#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_format.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {

absl::Status CoordinatorLine::Send(const Frame& frame) {
  if (frame.key.size() > kMaxFieldBytes || frame.value.size() > kMaxFieldBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("coordinator: key of %d and value of %d bytes; at most %d each",
                        frame.key.size(), frame.value.size(), kMaxFieldBytes));
  }
  const std::lock_guard lock(send_mutex_);
  return SendAll(socket_.get(), Encode(frame));
}

void CoordinatorLine::SendBeat(int rank) {
  // Another sender's frame serves as a beat, and may have to wait for room.
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || HasUnderway(socket_.get())) return;
  const std::string beat = Encode({.type = FrameType::kBeat, .rank = rank});
  const ssize_t n = ::send(socket_.get(), beat.data(), beat.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) (void)SendAll(socket_.get(), beat.substr(static_cast<size_t>(n)));
}

bool CoordinatorLine::Receive(std::vector<Frame>* frames) {
  char bytes[16 * 1024];
  const ssize_t n = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) return false;
  reader_.Append(bytes, static_cast<size_t>(n));
  for (;;) {
    auto frame = reader_.Next();
    if (!frame.ok()) return false;
    if (!frame->has_value()) return true;
    frames->push_back(**std::move(frame));
  }
}

void CoordinatorLine::HangUp() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace geminid::collectives
