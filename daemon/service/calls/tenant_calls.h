// The calls of one tenant: when a call may be read, and when it must be given up.
//
// A call waits for the tenant's rate and shows its token. A long call then waits for one of the
// tenant's places. After that the daemon reads and serves the call. Until then its message stays
// with the client, except for one window of HTTP/2.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_TENANT_CALLS_H_
#define GEMINID_DAEMON_SERVICE_CALLS_TENANT_CALLS_H_

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "daemon/core/transfers/token_bucket.h"
#include "daemon/metrics/call_times.h"
#include "daemon/service/calls/rpc_method.h"
#include "daemon/service/tenants/fair_workers.h"
#include "daemon/service/tenants/identity.h"
#include "daemon/service/tenants/limits.h"
#include "daemon/service/tenants/tenant_log.h"

namespace geminid::service {

// The time for a request to arrive once it may, and the time for the client to take the answer.
inline constexpr int64_t kReceiveNanoseconds = 20'000'000'000;
inline constexpr int64_t kAnswerNanoseconds = 60'000'000'000;

// State that all tenants share.
struct CallShared {
  SessionHub* hub = nullptr;
  Limits* limits = nullptr;
  TenantLog* log = nullptr;
  metrics::CallTimes* times = nullptr;
  FairWorkers* workers = nullptr;
  size_t worker_count = 1;
  std::map<std::string, RpcMethod> methods;
  std::function<void()> on_first_call;  // from now on Expire has work
  std::atomic<size_t> calls{0};
};

class RpcCall;

// Thread-safe. A shared object: calls keep it alive.
class TenantCalls : public std::enable_shared_from_this<TenantCalls> {
 public:
  TenantCalls(Identity identity, CallShared* shared);
  ~TenantCalls() = default;

  const Identity& identity() const { return identity_; }
  const std::string& tenant() const { return identity_.tenant; }
  CallShared& shared() const { return *shared_; }

  grpc::ServerGenericBidiReactor* Begin(grpc::GenericCallbackServerContext* context);
  // Lets calls continue whose turn has come, and cancels calls whose time is over.
  void Expire(int64_t now_nanoseconds);
  bool idle();  // there is no call

 private:
  friend class RpcCall;
  // One of the tenant's places for long calls. The last holder gives it back when it lets go.
  class Place;

  // The queue of calls of one kind, and the rate that they wait for.
  struct Gate {
    config::ShareKey key;
    core::TokenBucket rate;
    std::deque<RpcCall*> waiting;  // in the order of arrival
  };

  // All methods hold the mutex.
  bool MayPass(Gate* gate, core::Time now);
  void Admit(RpcCall* call);
  void AdmitLong(RpcCall* call);
  size_t MostLongCalls() const;
  void LogWaitingCall(const config::ShareKey& key, const std::string& what);

  void Read(RpcCall* call);
  void OnCancelled(RpcCall* call);  // the call will not continue by itself any more
  void OnDone(RpcCall* call);
  void GiveBack();

  const Identity identity_;
  CallShared* const shared_;
  std::mutex mutex_;
  Gate ordinary_;                       // guarded by mutex_
  Gate listings_;                       // guarded by mutex_
  std::set<RpcCall*> calls_;            // guarded by mutex_
  std::deque<RpcCall*> without_place_;  // guarded by mutex_; in the order of arrival
  size_t places_taken_ = 0;             // guarded by mutex_
  int64_t tell_again_at_ = 0;           // guarded by mutex_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_TENANT_CALLS_H_
