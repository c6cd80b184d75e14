#include "daemon/service/attach_server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/service/hello.h"

namespace geminid::service {
namespace {

constexpr int kBacklog = 128;
// When no descriptor is left for a connection, asking again at once would only spin.
constexpr int64_t kAcceptPauseNanoseconds = 1'000'000'000;
constexpr int kAcceptsPerEvent = 16;

void Refuse(const base::UniqueFd& connection, const absl::Status& status) {
  shm::Welcome welcome = {};
  welcome.magic = shm::kWelcomeMagic;
  welcome.protocol_version = shm::kProtocolVersion;
  welcome.status = static_cast<uint32_t>(status.code());
  const std::string text(status.message());
  std::memcpy(welcome.error, text.data(), std::min(text.size(), sizeof(welcome.error) - 1));
  // It may have gone already.
  (void)os::SendMessage(connection, std::as_bytes(std::span(&welcome, 1)), {});
  os::Log(os::LogLevel::kWarning, "attach refused", {{"error", text}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Create(const std::string& path,
                                                                   mode_t mode, os::EventLoop* loop,
                                                                   Hub* hub,
                                                                   OnAttached on_attached) {
  absl::StatusOr<base::UniqueFd> listener = os::ListenSeqpacket(path, mode, kBacklog);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<AttachServer> server(
      new AttachServer(*std::move(listener), loop, hub, std::move(on_attached)));
  if (absl::Status status = server->WatchListener(); !status.ok()) return status;
  return server;
}

AttachServer::~AttachServer() {
  loop_->Unwatch(listener_watch_);
  for (const auto& [id, handshake] : handshakes_) loop_->Unwatch(handshake.watch);
}

absl::Status AttachServer::WatchListener() {
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(listener_.get(), EPOLLIN, [this](uint32_t) { AcceptAll(); });
  if (!watch.ok()) return watch.status();
  listener_watch_ = *watch;
  return absl::OkStatus();
}

void AttachServer::AcceptAll() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    absl::StatusOr<base::UniqueFd> connection = os::Accept(listener_);
    if (!connection.ok()) {
      os::Log(os::LogLevel::kError, "no connections are accepted for a second",
              {{"error", std::string(connection.status().message())}});
      loop_->Unwatch(listener_watch_);
      listener_watch_ = 0;
      accept_again_at_ = os::MonotonicNanoseconds() + kAcceptPauseNanoseconds;
      return;
    }
    if (!connection->valid()) return;
    StartHandshake(*std::move(connection));
  }
}

void AttachServer::StartHandshake(base::UniqueFd connection) {
  if (handshakes_.size() >= kMaxHandshakes) {
    Refuse(connection, absl::UnavailableError(absl::StrCat(
                           kMaxHandshakes, " other clients are attaching just now; try again")));
    return;
  }
  const uint64_t id = next_handshake_++;
  Handshake handshake;
  handshake.deadline = os::MonotonicNanoseconds() + kHandshakeNanoseconds;
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(connection.get(), EPOLLIN, [this, id](uint32_t) { OnReadable(id); });
  if (!watch.ok()) {
    Refuse(connection, watch.status());
    return;
  }
  handshake.watch = *watch;
  handshake.connection = std::move(connection);
  handshakes_.emplace(id, std::move(handshake));
}

void AttachServer::OnReadable(uint64_t id) {
  const auto found = handshakes_.find(id);
  if (found == handshakes_.end()) return;
  std::array<std::byte, sizeof(shm::Hello)> buffer;
  const os::Received received = os::ReceiveMessage(found->second.connection, buffer);
  if (received.result == os::Received::Result::kNothing) return;
  base::UniqueFd connection = std::move(found->second.connection);
  loop_->Unwatch(found->second.watch);
  handshakes_.erase(found);
  if (received.result == os::Received::Result::kEnd) return;
  if (received.had_fds) {
    Refuse(connection, absl::InvalidArgumentError("a hello carries no descriptors"));
    return;
  }
  if (received.truncated && received.bytes > buffer.size()) {
    // Its version may explain its size: that is the better message.
    const absl::Status status = CheckHello(buffer).status();
    Refuse(connection,
           absl::IsFailedPrecondition(status)
               ? status
               : absl::InvalidArgumentError(absl::StrCat("a hello of ", received.bytes,
                                                         " bytes; expected ", sizeof(shm::Hello))));
    return;
  }
  Finish(std::move(connection), std::span(buffer).first(received.bytes));
}

void AttachServer::Finish(base::UniqueFd connection, std::span<const std::byte> hello) {
  absl::StatusOr<core::SessionSpec> spec = CheckHello(hello);
  if (!spec.ok()) return Refuse(connection, spec.status());
  absl::StatusOr<os::Peer> peer = os::PeerOf(connection);
  if (!peer.ok()) return Refuse(connection, peer.status());
  spec->uid = peer->uid;
  spec->pid = peer->pid;
  spec->tenant = absl::StrCat("uid:", peer->uid);
  // The session takes the connection; a refusal needs another descriptor of it.
  base::UniqueFd copy(::dup(connection.get()));
  absl::StatusOr<SessionPtr> session = hub_->Open(*spec, *std::move(peer), std::move(connection));
  if (!session.ok()) return Refuse(copy, session.status());
  copy.Reset();
  on_attached_(*session);
  absl::Status sent = (*session)->SendWelcome(hub_->daemon_epoch());
  os::Log(sent.ok() ? os::LogLevel::kInfo : os::LogLevel::kWarning,
          sent.ok() ? "session attached" : "a client left while it attached",
          {{"session", absl::StrCat(shm::Value((*session)->id()))},
           {"job", spec->job},
           {"rank", absl::StrCat(spec->rank)},
           {"device", absl::StrCat(shm::Value((*session)->device().index))},
           {"tenant", spec->tenant},
           {"pid", absl::StrCat(spec->pid)},
           {"client", spec->client}});
  // A client that could not be told has gone, or will be seen going by the event loop.
  if (!sent.ok()) (*session)->Disconnect();
}

void AttachServer::Expire(int64_t now_nanoseconds) {
  while (!handshakes_.empty() && handshakes_.begin()->second.deadline <= now_nanoseconds) {
    const auto first = handshakes_.begin();
    Refuse(first->second.connection, absl::DeadlineExceededError("no hello came in time"));
    loop_->Unwatch(first->second.watch);
    handshakes_.erase(first);
  }
  if (accept_again_at_ == 0 || accept_again_at_ > now_nanoseconds) return;
  accept_again_at_ = WatchListener().ok() ? 0 : now_nanoseconds + kAcceptPauseNanoseconds;
}

std::optional<int64_t> AttachServer::NextDeadline() const {
  std::optional<int64_t> next;
  if (!handshakes_.empty()) next = handshakes_.begin()->second.deadline;
  if (accept_again_at_ != 0) next = std::min(next.value_or(accept_again_at_), accept_again_at_);
  return next;
}

}  // namespace geminid::service
