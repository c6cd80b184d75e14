#include "daemon/service/entry/attach_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/service/calls/hello.h"

namespace geminid::service {
namespace {

constexpr int kBacklog = 4096;  // as many as the kernel allows by default (somaxconn)

}  // namespace

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Create(
    const std::string& path, mode_t mode, base::UniqueFd handed_over, os::EventLoop* loop,
    SessionHub* hub, TenantLog* log, const Clients* clients, OnAttached on_attached) {
  absl::StatusOr<base::UniqueFd> listener =
      handed_over.valid() ? os::AdoptListener(std::move(handed_over), SOCK_SEQPACKET, path)
                          : os::ListenSeqpacket(path, mode, kBacklog);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<AttachServer> server(
      new AttachServer(loop, hub, log, clients, std::move(on_attached)));
  absl::StatusOr<std::unique_ptr<os::Acceptor>> acceptor = os::Acceptor::Create(
      *std::move(listener), "the attach socket", loop,
      [raw = server.get()](base::UniqueFd fd) { raw->OnConnection(std::move(fd)); });
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  return server;
}

AttachServer::~AttachServer() {
  for (const auto& [id, handshake] : handshakes_) loop_->Unwatch(handshake.watch);
}

void AttachServer::Refuse(const base::UniqueFd& connection, const std::string& tenant,
                          const absl::Status& why) {
  shm::Welcome welcome = {};
  welcome.magic = shm::kWelcomeMagic;
  welcome.protocol_version = shm::kProtocolVersion;
  welcome.status = static_cast<uint32_t>(why.code());
  const std::string text(why.message());
  std::memcpy(welcome.error, text.data(), std::min(text.size(), sizeof(welcome.error) - 1));
  // The client may have gone already.
  (void)os::SendMessage(connection, std::as_bytes(std::span(&welcome, 1)), {});
  log_->Write(tenant, os::LogLevel::kWarning, "attach refused",
              {{"tenant", tenant}, {"error", text}});
}

void AttachServer::OnConnection(base::UniqueFd connection) {
  if (flood_.Floods(connection, Now())) return;
  absl::StatusOr<Client> client = clients_->OfSession(connection);
  if (!client.ok()) return Refuse(connection, kUnresolvedTenant, client.status());
  const std::string tenant = client->identity.tenant;
  if (absl::Status status = StartHandshake(&connection, &client->peer, tenant); !status.ok()) {
    Refuse(connection, tenant, status);
  }
}

absl::Status AttachServer::StartHandshake(base::UniqueFd* connection, os::Peer* peer,
                                          const std::string& tenant) {
  if (os::IsFromReserve(*connection)) {
    hub_->limits().Count(kOpenFiles, tenant);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the daemon has no descriptors left for another client, of its ", os::MaxDescriptors(),
        " (open_files); raise its limit of open files (LimitNOFILE=) and start it again"));
  }
  MakeRoom(tenant);
  const uint64_t id = next_handshake_++;
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(connection->get(), EPOLLIN, [this, id](uint32_t) { OnReadable(id); });
  if (!watch.ok()) return watch.status();
  handshakes_.emplace(id,
                      Handshake{.connection = std::move(*connection),
                                .peer = std::move(*peer),
                                .tenant = tenant,
                                .watch = *watch,
                                .deadline = os::MonotonicNanoseconds() + kHandshakeNanoseconds});
  ++handshakes_of_[tenant];
  return absl::OkStatus();
}

void AttachServer::MakeRoom(const std::string& tenant) {
  std::string whose = tenant;
  const size_t share = hub_->limits().Get(config::kHandshakes);
  if (handshakes_of_[tenant] < share) {
    if (handshakes_.size() < kHandshakeShares * share) return;
    whose = std::max_element(handshakes_of_.begin(), handshakes_of_.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; })
                ->first;
  }
  const auto oldest = std::find_if(handshakes_.begin(), handshakes_.end(),
                                   [&](const auto& entry) { return entry.second.tenant == whose; });
  Drop(oldest,
       hub_->limits().Refuse(config::kHandshakes, whose,
                             absl::StrCat("sent no hello on this connection, and has opened ",
                                          handshakes_of_[whose] - 1, " more connections since"),
                             "send the hello at once"));
}

void AttachServer::Drop(Handshakes::iterator handshake, const absl::Status& why) {
  Refuse(handshake->second.connection, handshake->second.tenant, why);
  loop_->Unwatch(handshake->second.watch);
  const auto count = handshakes_of_.find(handshake->second.tenant);
  if (--count->second == 0) handshakes_of_.erase(count);
  handshakes_.erase(handshake);
}

void AttachServer::OnReadable(uint64_t id) {
  const auto found = handshakes_.find(id);
  if (found == handshakes_.end()) return;
  std::array<std::byte, sizeof(shm::Hello)> buffer;
  const os::Received received = os::ReceiveMessage(found->second.connection, buffer);
  if (received.result == os::Received::Result::kNothing) return;
  loop_->Unwatch(found->second.watch);
  Handshake handshake = std::move(found->second);
  handshakes_.erase(found);
  const auto count = handshakes_of_.find(handshake.tenant);
  if (--count->second == 0) handshakes_of_.erase(count);
  if (received.result == os::Received::Result::kEnd) return;
  if (received.had_fds) {
    return Refuse(handshake.connection, handshake.tenant,
                  absl::InvalidArgumentError("a hello carries no descriptors"));
  }
  Finish(std::move(handshake), std::span(buffer).first(std::min(received.bytes, buffer.size())),
         received.bytes);
}

void AttachServer::Finish(Handshake handshake, std::span<const std::byte> hello,
                          size_t hello_bytes) {
  // Not before the Hello is read: closing with unread bytes would discard the refusal.
  Limits& limits = hub_->limits();
  attaches_.SetRate(limits.RateOf(config::kAttachRate, config::kAttachBurstSeconds));
  if (!attaches_.Take(handshake.tenant, Now())) {
    return Refuse(handshake.connection, handshake.tenant,
                  limits.Refuse(config::kAttachRate, handshake.tenant,
                                absl::StrCat("attaches more than ", limits.Get(config::kAttachRate),
                                             " times a second"),
                                "try again in a moment"));
  }
  absl::StatusOr<core::SessionSpec> spec = CheckHello(hello, hello_bytes);
  if (!spec.ok()) return Refuse(handshake.connection, handshake.tenant, spec.status());
  spec->uid = handshake.peer.uid;
  spec->pid = handshake.peer.pid;
  spec->tenant = handshake.tenant;
  // The session takes the connection; a refusal needs another descriptor of it.
  base::UniqueFd copy(::fcntl(handshake.connection.get(), F_DUPFD_CLOEXEC, 0));
  absl::StatusOr<SessionPtr> session =
      hub_->Open(*spec, std::move(handshake.peer), std::move(handshake.connection));
  if (!session.ok()) return Refuse(copy, spec->tenant, session.status());
  on_attached_(*session);
  absl::Status sent = (*session)->SendWelcome(hub_->daemon_epoch());
  if (sent.ok()) hub_->SetWelcomed(*session);
  if (absl::IsResourceExhausted(sent)) Refuse(copy, spec->tenant, sent);
  log_->Write(spec->tenant, sent.ok() ? os::LogLevel::kInfo : os::LogLevel::kWarning,
              sent.ok() ? "session attached" : "a client left while it attached",
              {{"session", absl::StrCat(shm::Value((*session)->id()))},
               {"job", spec->job},
               {"rank", absl::StrCat(spec->rank)},
               {"predecessors", absl::StrCat((*session)->successor)},
               {"device", absl::StrCat(shm::Value((*session)->device().index))},
               {"tenant", spec->tenant},
               {"pid", absl::StrCat(spec->pid)},
               {"client", spec->client}});
  // A client that could not be told has gone, or will be seen going by the event loop.
  if (!sent.ok()) (*session)->Wake(SleepingClient::End::kAll);
}

void AttachServer::Expire(int64_t now_nanoseconds) {
  acceptor_->Expire(now_nanoseconds);
  while (!handshakes_.empty() && handshakes_.begin()->second.deadline <= now_nanoseconds) {
    Drop(handshakes_.begin(), absl::DeadlineExceededError("no hello came in time"));
  }
}

std::optional<int64_t> AttachServer::NextDeadline() const {
  std::optional<int64_t> next = acceptor_->NextDeadline();
  if (handshakes_.empty()) return next;
  const int64_t first = handshakes_.begin()->second.deadline;
  return std::min(next.value_or(first), first);
}

}  // namespace geminid::service
