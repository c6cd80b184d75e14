// The gRPC server on the Unix socket: all services, health and reflection.
#ifndef GEMINID_DAEMON_SERVICE_RPC_SERVER_H_
#define GEMINID_DAEMON_SERVICE_RPC_SERVER_H_

#include <grpcpp/server.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/config/settings.h"
#include "daemon/service/client_services.h"
#include "daemon/service/hub.h"
#include "daemon/service/operator_services.h"

namespace geminid::service {

class RpcServer {
 public:
  // `settings` outlive it. Binds `facts.socket`, whose path must be free (gRPC would take it over
  // without a word).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const SettingsInForce* settings, const DaemonFacts& facts, Hub* hub,
      std::function<void(shm::SessionId)> on_detached);
  ~RpcServer();

  // Health checks answer NOT_SERVING from now on.
  void Drain();
  // Ends calls that are still running after `patience`, waits for them and removes the socket.
  void Shutdown(absl::Duration patience);

 private:
  RpcServer(const SettingsInForce* settings, const DaemonFacts& facts, Hub* hub,
            std::function<void(shm::SessionId)> on_detached);

  SessionRpc session_;
  ChunkRpc chunk_;
  PlanRpc plan_;
  MemoryRpc memory_;
  AdminRpc admin_;
  ConfigRpc config_;
  std::unique_ptr<grpc::Server> server_;
};

// gRPC's address of a Unix socket: a URI, in which some characters need escapes.
std::string GrpcAddress(const std::string& path);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_RPC_SERVER_H_
