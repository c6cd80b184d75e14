// The control plane: gRPC on the Unix socket, for tenants who do not trust each other.
//
// gRPC neither asks the kernel who has connected nor reads a message in part. So RpcServer accepts
// the connections and asks the kernel itself. Each tenant has a gRPC server of its own, which gets
// their bytes through the gate. Calls are asynchronous, and a message stays unparsed until its
// caller has shown its token. No thread waits for a client.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_RPC_SERVER_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_RPC_SERVER_H_

#include <grpcpp/server.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/config/settings.h"
#include "daemon/os/acceptor.h"
#include "daemon/service/calls/services.h"
#include "daemon/service/calls/tenant_calls.h"
#include "daemon/service/entry/http2_gate.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/flood_guard.h"
#include "daemon/service/tenants/identity.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

// Belongs to its event loop's thread.
class RpcServer {
 public:
  // Listens at `facts.socket`: with `listener` or, if that is invalid, with a new one, for which
  // the path must be free. Everything pointed to must outlive the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const SettingsInForce* settings, const DaemonFacts& facts, base::UniqueFd listener,
      os::EventLoop* loop, SessionHub* hub, TenantLog* log, const Clients* clients,
      std::function<void(shm::SessionId)> on_detached);
  ~RpcServer();

  // Health checks answer NOT_SERVING from now on.
  void Drain() { draining_.store(true); }
  // Takes no more connections, ends calls that still run after `patience`, and gives up those whose
  // work goes on. The destructor waits for that work. No other thread may use the event loop
  // meanwhile. False: gRPC has not ended within two seconds. Then the server, and everything
  // pointed to, must never be destroyed.
  bool Shutdown(absl::Duration patience);

  // Continues calls whose time has come, cancels those that take too long, and deletes tenants
  // without connections and calls.
  void Expire(int64_t now_nanoseconds);
  std::optional<int64_t> NextDeadline() const;

 private:
  class Tenant;

  RpcServer(const SettingsInForce* settings, const DaemonFacts& facts, os::EventLoop* loop,
            SessionHub* hub, TenantLog* log, const Clients* clients,
            std::function<void(shm::SessionId)> on_detached);
  void AddMethods();
  void AddHealth();
  int64_t NextTick() const;
  void OnConnection(base::UniqueFd connection);
  // Null: there are too many tenants (never for the operator), or gRPC did not start a server.
  Tenant* FindOrStart(const Identity& identity);
  // Why the newest connection cannot be served; OK: it can be. A null `tenant` has no server.
  absl::Status CheckRate(const Identity& identity);
  absl::Status CheckDescriptors(const base::UniqueFd& newest, const Identity& identity);
  absl::Status CheckLimits(const std::string& name, Tenant* tenant);

  Services services_;
  os::EventLoop* const loop_;
  TenantLog* const log_;
  const Clients* const clients_;
  std::atomic<bool> draining_{false};
  CallShared shared_;
  std::unique_ptr<FairWorkers> workers_;
  FloodGuard flood_;
  Http2Gate gate_;
  // Serves nobody. gRPC makes its event engine with the first server and ends it with the last. It
  // aborts the process where there is no descriptor for another engine, so one server always lives.
  std::unique_ptr<Tenant> keeper_;
  core::TenantRates connections_{core::Rate{}};  // by name, operators apart
  // By name, and whether it is an operator: root in a container of its own may have root's name.
  std::map<std::pair<std::string, bool>, std::unique_ptr<Tenant>> tenants_;
  std::unique_ptr<os::Acceptor> acceptor_;
  int64_t last_tick_ = 0;
};

// gRPC's address of a Unix socket: a URI, in which some characters need escapes.
std::string GrpcAddress(const std::string& path);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_RPC_SERVER_H_
