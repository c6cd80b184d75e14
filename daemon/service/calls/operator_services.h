// The gRPC methods that show the daemon's state: its sessions, memory and configuration. They
// change nothing. A caller who is not an operator sees the contents of its own sessions only. Of
// other sessions it sees how much memory they hold.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_OPERATOR_SERVICES_H_
#define GEMINID_DAEMON_SERVICE_CALLS_OPERATOR_SERVICES_H_

#include <string>
#include <vector>

#include "daemon/service/calls/rpc_method.h"
#include "daemon/service/calls/settings_in_force.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/watch/vitals.h"
#include "geminid/v1/admin.pb.h"
#include "geminid/v1/config.pb.h"
#include "geminid/v1/memory.pb.h"

namespace geminid::service {

// Facts that do not come from the hub.
struct DaemonFacts {
  std::string version;
  std::string socket;
  std::string metrics_address;  // empty: none
  double start_time_seconds = 0;
  int64_t start_nanoseconds = 0;  // monotonic
  std::string metrics_socket{};   // empty: none
  Vitals* vitals = nullptr;
};

class MemoryRpc {
 public:
  explicit MemoryRpc(SessionHub* hub) : hub_(hub) {}
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  absl::Status GetLedger(v1::Ledger* response);

  SessionHub* const hub_;
};

class AdminRpc {
 public:
  AdminRpc(SessionHub* hub, DaemonFacts facts) : hub_(hub), facts_(std::move(facts)) {}
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  absl::Status GetStatus(v1::Status* response);
  absl::Status ListSessions(const Caller& caller, const v1::ListSessionsRequest& request,
                            v1::ListSessionsResponse* response);
  absl::Status ListPools(const v1::ListPoolsRequest& request, v1::ListPoolsResponse* response);
  absl::Status ListChunks(const Caller& caller, const v1::ListChunksRequest& request,
                          v1::ListChunksResponse* response);
  absl::Status ExplainChunk(const Caller& caller, const v1::ExplainChunkRequest& request,
                            v1::ExplainChunkResponse* response);
  absl::Status GetTrace(const Caller& caller, const v1::GetTraceRequest& request,
                        v1::TraceFile* response);

  SessionHub* const hub_;
  const DaemonFacts facts_;
};

class ConfigRpc {
 public:
  explicit ConfigRpc(const SettingsInForce* settings) : settings_(settings) {}
  void AddTo(std::vector<RpcMethod>* methods);

 private:
  absl::Status Show(v1::ShowConfigResponse* response);

  const SettingsInForce* const settings_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_OPERATOR_SERVICES_H_
