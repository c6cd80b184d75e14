// The gRPC services of attached clients. Every call carries its session's token.
#ifndef GEMINID_DAEMON_SERVICE_CLIENT_SERVICES_H_
#define GEMINID_DAEMON_SERVICE_CLIENT_SERVICES_H_

#include <functional>

#include "daemon/service/hub.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/plan.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"

namespace geminid::service {

// At most this many chunks in one call: more come in several.
inline constexpr int kMaxChunksPerCall = 65536;

class SessionRpc : public v1::SessionService::Service {
 public:
  // `on_detached` is called on the gRPC thread after a session has ended.
  SessionRpc(Hub* hub, std::function<void(shm::SessionId)> on_detached)
      : hub_(hub), on_detached_(std::move(on_detached)) {}
  grpc::Status CreateArena(grpc::ServerContext* context, const v1::CreateArenaRequest* request,
                           v1::CreateArenaResponse* response) override;
  grpc::Status Detach(grpc::ServerContext* context, const v1::DetachRequest* request,
                      v1::DetachResponse* response) override;

 private:
  Hub* const hub_;
  const std::function<void(shm::SessionId)> on_detached_;
};

class ChunkRpc : public v1::ChunkService::Service {
 public:
  explicit ChunkRpc(Hub* hub) : hub_(hub) {}
  grpc::Status Allocate(grpc::ServerContext* context, const v1::AllocateChunksRequest* request,
                        v1::AllocateChunksResponse* response) override;
  grpc::Status Free(grpc::ServerContext* context, const v1::FreeChunksRequest* request,
                    v1::FreeChunksResponse* response) override;

 private:
  Hub* const hub_;
};

class PlanRpc : public v1::PlanService::Service {
 public:
  explicit PlanRpc(Hub* hub) : hub_(hub) {}
  grpc::Status MakePlan(grpc::ServerContext* context, const v1::MakePlanRequest* request,
                        v1::MakePlanResponse* response) override;

 private:
  Hub* const hub_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CLIENT_SERVICES_H_
