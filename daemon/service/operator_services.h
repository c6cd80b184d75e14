// The gRPC services of the operator: what is, who holds it, and why. They change nothing.
#ifndef GEMINID_DAEMON_SERVICE_OPERATOR_SERVICES_H_
#define GEMINID_DAEMON_SERVICE_OPERATOR_SERVICES_H_

#include <atomic>
#include <string>

#include "daemon/service/hub.h"
#include "daemon/service/settings_in_force.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/config.grpc.pb.h"
#include "geminid/v1/memory.grpc.pb.h"

namespace geminid::service {

// What does not come from the hub.
struct DaemonFacts {
  std::string version;
  std::string socket;
  std::string metrics_address;  // empty: none
  double start_time_seconds = 0;
  int64_t start_nanoseconds = 0;  // monotonic
  const std::atomic<bool>* draining = nullptr;
};

// Chunks in one answer unless the caller says otherwise, and at most.
inline constexpr uint32_t kDefaultChunkLimit = 1000;
inline constexpr uint32_t kMaxChunkLimit = 65536;

class MemoryRpc : public v1::MemoryService::Service {
 public:
  explicit MemoryRpc(Hub* hub) : hub_(hub) {}
  grpc::Status GetLedger(grpc::ServerContext* context, const v1::GetLedgerRequest* request,
                         v1::Ledger* response) override;

 private:
  Hub* const hub_;
};

class AdminRpc : public v1::AdminService::Service {
 public:
  AdminRpc(Hub* hub, DaemonFacts facts) : hub_(hub), facts_(std::move(facts)) {}
  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::Status* response) override;
  grpc::Status ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override;
  grpc::Status ListPools(grpc::ServerContext* context, const v1::ListPoolsRequest* request,
                         v1::ListPoolsResponse* response) override;
  grpc::Status ListChunks(grpc::ServerContext* context, const v1::ListChunksRequest* request,
                          v1::ListChunksResponse* response) override;
  grpc::Status ExplainChunk(grpc::ServerContext* context, const v1::ExplainChunkRequest* request,
                            v1::ExplainChunkResponse* response) override;
  grpc::Status GetTrace(grpc::ServerContext* context, const v1::GetTraceRequest* request,
                        v1::TraceFile* response) override;

 private:
  Hub* const hub_;
  const DaemonFacts facts_;
};

class ConfigRpc : public v1::ConfigService::Service {
 public:
  explicit ConfigRpc(const SettingsInForce* settings) : settings_(settings) {}
  grpc::Status Show(grpc::ServerContext* context, const v1::ShowConfigRequest* request,
                    v1::ShowConfigResponse* response) override;

 private:
  const SettingsInForce* const settings_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_OPERATOR_SERVICES_H_
