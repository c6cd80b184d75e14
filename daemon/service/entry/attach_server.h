// The attach socket. The kernel says who has connected; the client sends Hello and gets a session.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_ATTACH_SERVER_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_ATTACH_SERVER_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/core/transfers/token_bucket.h"
#include "daemon/os/acceptor.h"
#include "daemon/os/event_loop.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/flood_guard.h"
#include "daemon/service/tenants/identity.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

// Limits for connections that have not sent Hello yet: in all, the shares of this many tenants; and
// how long each may take. Beyond a limit the oldest connection of the tenant with the most is
// closed: it has had its chance.
inline constexpr size_t kHandshakeShares = 4;
inline constexpr int64_t kHandshakeNanoseconds = 5'000'000'000;

// Belongs to its event loop's thread. Never waits for a client: a slow one only delays its own
// connection, and for kHandshakeNanoseconds at most.
class AttachServer {
 public:
  // Called on the loop's thread, before the client is told.
  using OnAttached = std::function<void(const SessionPtr&)>;

  // Listens at `path`: with `listener` or, if that is invalid, with a new one, for which the path
  // must be free. Everything pointed to must outlive the server.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Create(
      const std::string& path, mode_t mode, base::UniqueFd listener, os::EventLoop* loop,
      SessionHub* hub, TenantLog* log, const Clients* clients, OnAttached on_attached);
  ~AttachServer();

  // Closes handshakes that took too long, and accepts again after the descriptors had run out.
  void Expire(int64_t now_nanoseconds);
  // When to call Expire next.
  std::optional<int64_t> NextDeadline() const;

 private:
  struct Handshake {
    base::UniqueFd connection;
    os::Peer peer;
    std::string tenant;
    os::EventLoop::WatchId watch = 0;
    int64_t deadline = 0;
  };
  using Handshakes = std::map<uint64_t, Handshake>;

  AttachServer(os::EventLoop* loop, SessionHub* hub, TenantLog* log, const Clients* clients,
               OnAttached on_attached)
      : loop_(loop),
        hub_(hub),
        log_(log),
        clients_(clients),
        on_attached_(std::move(on_attached)),
        flood_(&hub->limits()) {}
  void OnConnection(base::UniqueFd connection);
  absl::Status StartHandshake(base::UniqueFd* connection, os::Peer* peer,
                              const std::string& tenant);
  void MakeRoom(const std::string& tenant);
  void OnReadable(uint64_t handshake);
  // `hello`: the first bytes of a message of `hello_bytes` bytes.
  void Finish(Handshake handshake, std::span<const std::byte> hello, size_t hello_bytes);
  // Ends the handshake without a session.
  void Drop(Handshakes::iterator handshake, const absl::Status& why);
  void Refuse(const base::UniqueFd& connection, const std::string& tenant, const absl::Status& why);

  os::EventLoop* const loop_;
  SessionHub* const hub_;
  TenantLog* const log_;
  const Clients* const clients_;
  const OnAttached on_attached_;
  FloodGuard flood_;
  core::TenantRates attaches_{core::Rate{}};
  uint64_t next_handshake_ = 1;
  Handshakes handshakes_;                        // in the order of their deadlines
  std::map<std::string, size_t> handshakes_of_;  // by tenant
  std::unique_ptr<os::Acceptor> acceptor_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_ATTACH_SERVER_H_
