#include "collectives/tcp/peer_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/process_limits.h"
#include "base/status_macros.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {
namespace {

constexpr int kPollMilliseconds = 10;
// Further ones are not accepted, because connections that are here may be awaited.
constexpr size_t kMaxVisitors = 4096;
constexpr size_t kMaxIntroductionBytes = 64 * 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<PeerListener>> PeerListener::Open(
    const std::string& rank_0_host, const std::string& interface_address) {
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd listener, interface_address.empty()
                                                        ? ListenTcp(rank_0_host, 0)
                                                        : ListenAtAddress(interface_address));
  GEMINID_ASSIGN_OR_RETURN(const uint16_t port, PortOf(listener.get()));
  return std::unique_ptr<PeerListener>(new PeerListener(std::move(listener), port));
}

absl::StatusOr<std::map<int, base::UniqueFd>> PeerListener::Take(const std::string& purpose) {
  std::lock_guard lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Accept());
  std::map<int, base::UniqueFd> taken;
  std::erase_if(visitors_, [&](Visitor& visitor) {
    if (visitor.purpose.empty() && !Hear(&visitor)) return true;
    if (visitor.purpose != purpose) return false;
    taken[visitor.rank] = std::move(visitor.socket);  // the last one, if it came several times
    return true;
  });
  return taken;
}

void PeerListener::Await(const base::Deadline& deadline) {
  std::vector<pollfd> polls = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  {
    std::lock_guard lock(mutex_);
    for (const Visitor& visitor : visitors_) {
      if (visitor.purpose.empty()) polls.push_back({visitor.socket.get(), POLLIN, 0});
    }
    if (visitors_.size() >= kMaxVisitors) polls[0].fd = -1;
  }
  (void)::poll(polls.data(), polls.size(), deadline.LeftMilliseconds(kPollMilliseconds));
}

absl::Status PeerListener::Accept() {
  while (visitors_.size() < kMaxVisitors) {
    base::UniqueFd socket = AcceptTcp(listener_.get());
    if (!socket.valid()) {
      const bool is_exhausted = errno == EMFILE || errno == ENFILE;
      return is_exhausted ? base::WithLimits(absl::ErrnoToStatus(errno, "cannot accept a rank"))
                          : absl::OkStatus();
    }
    visitors_.push_back({.socket = std::move(socket)});
  }
  return absl::OkStatus();
}

bool PeerListener::Hear(Visitor* visitor) {
  char bytes[1024];
  for (;;) {
    const size_t wanted = std::min(sizeof(bytes), visitor->reader.BytesWanted());
    if (visitor->reader.BytesWanted() > kMaxIntroductionBytes) return false;
    const ssize_t count = ::recv(visitor->socket.get(), bytes, wanted, MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    visitor->reader.Append(bytes, static_cast<size_t>(count));
    const auto frame = visitor->reader.Next();
    if (!frame.ok()) return false;
    if (!frame->has_value()) continue;
    visitor->purpose = (*frame)->key;
    visitor->rank = (*frame)->rank;
    return (*frame)->type == FrameType::kHello && (*frame)->value == kProtocol;
  }
}

absl::Status Introduce(int socket, const std::string& purpose, int rank) {
  return SendAll(
      socket,
      Encode({.type = FrameType::kHello, .rank = rank, .key = purpose, .value = kProtocol}));
}

}  // namespace geminid::collectives
