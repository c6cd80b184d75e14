// The gRPC methods of attached training processes: memory, plans and admission. Every call carries
// the token of its session.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_CLIENT_SERVICES_H_
#define GEMINID_DAEMON_SERVICE_CALLS_CLIENT_SERVICES_H_

#include <functional>
#include <vector>

#include "daemon/service/calls/rpc_method.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/tenant_log.h"
#include "geminid/v1/chunk.pb.h"
#include "geminid/v1/plan.pb.h"
#include "geminid/v1/session.pb.h"

namespace geminid::service {

// At most this many chunks in one call. A client allocates more in several calls.
inline constexpr int kMaxChunksPerCall = 65536;
// Each chunk has a name of at most 128 characters. A call of Free has numbers only.
inline constexpr RpcBounds kAllocateBounds = {.bytes = 12 << 20, .items = 2 * kMaxChunksPerCall};
inline constexpr RpcBounds kFreeBounds = {.bytes = 512 << 10, .items = 0};
// A trace of the most moments and uses takes some 50 MiB of memory, and a tenant may send several.
inline constexpr RpcBounds kPlanBounds = {.bytes = 16 << 20, .items = 500'000};

class SessionRpc {
 public:
  // `on_detached` is called on the worker's thread after a session has ended.
  SessionRpc(SessionHub* hub, TenantLog* log, std::function<void(shm::SessionId)> on_detached)
      : hub_(hub), log_(log), on_detached_(std::move(on_detached)) {}
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  absl::Status CreateArena(const Caller& caller, const v1::CreateArenaRequest& request,
                           v1::CreateArenaResponse* response);
  absl::Status Admit(const Caller& caller, const v1::AdmitRequest& request,
                     v1::AdmitResponse* response);
  absl::Status GetHostShare(const Caller& caller, v1::GetHostShareResponse* response);
  absl::Status Detach(const Caller& caller);

  SessionHub* const hub_;
  TenantLog* const log_;
  const std::function<void(shm::SessionId)> on_detached_;
};

class ChunkRpc {
 public:
  explicit ChunkRpc(SessionHub* hub) : hub_(hub) {}
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  absl::Status Allocate(const Caller& caller, const v1::AllocateChunksRequest& request,
                        v1::AllocateChunksResponse* response);
  absl::Status Free(const Caller& caller, const v1::FreeChunksRequest& request);

  SessionHub* const hub_;
};

class PlanRpc {
 public:
  explicit PlanRpc(SessionHub* hub) : hub_(hub) {}
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  absl::Status MakePlan(const Caller& caller, const v1::MakePlanRequest& request,
                        v1::MakePlanResponse* response);

  SessionHub* const hub_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_CLIENT_SERVICES_H_
