// The calls of one tenant: when each may be read, and when it must be given up.
//
// A call goes through these: it waits for the tenant's rate, shows its token, waits, if it is a
// long one, for one of the tenant's places, is read, and is served. Until it is read, its message
// stays with whoever sends it, but for what one window of HTTP/2 holds.
#ifndef GEMINID_DAEMON_SERVICE_TENANT_CALLS_H_
#define GEMINID_DAEMON_SERVICE_TENANT_CALLS_H_

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/token_bucket.h"
#include "daemon/service/fair_workers.h"
#include "daemon/service/rpc_method.h"

namespace geminid::service {

// A job of 256 ranks that starts makes a few thousand calls; more than the burst only wait.
inline constexpr core::Rate kCallRate = {.per_second = 500, .burst = 2000};
// Of one tenant, being sent, served or answered.
inline constexpr size_t kMaxCallsPerTenant = 256;
// For the request to come once it may, and for the answer to be taken.
inline constexpr int64_t kReceiveNanoseconds = 20'000'000'000;
inline constexpr int64_t kAnswerNanoseconds = 60'000'000'000;

// What all tenants share.
struct CallShared {
  Hub* hub = nullptr;
  FairWorkers* workers = nullptr;
  size_t long_calls_per_tenant = 1;  // at once
  std::map<std::string, RpcMethod> methods;
  std::function<void()> on_first_call;  // there is something to Expire from now on
  std::atomic<size_t> calls{0};
};

class RpcCall;

// Thread-safe. Shared: calls keep it alive.
class TenantCalls : public std::enable_shared_from_this<TenantCalls> {
 public:
  TenantCalls(Identity identity, CallShared* shared);
  ~TenantCalls() = default;

  const Identity& identity() const { return identity_; }
  const std::string& tenant() const { return identity_.tenant; }
  CallShared& shared() const { return *shared_; }

  grpc::ServerGenericBidiReactor* Begin(grpc::GenericCallbackServerContext* context);
  // Lets calls go on whose turn has come, and cancels those whose time is over.
  void Expire(int64_t now_nanoseconds);

 private:
  friend class RpcCall;
  // One of the tenant's places for long calls; given back when the last who holds it lets go.
  class Place;

  // All under the mutex.
  void Admit(RpcCall* call);
  void AdmitLong(RpcCall* call);

  void Read(RpcCall* call);
  void OnCancelled(RpcCall* call);  // it will not go on by itself any more
  void OnDone(RpcCall* call);
  void GiveBack();

  const Identity identity_;
  CallShared* const shared_;
  std::mutex mutex_;
  core::TokenBucket rate_;              // guarded by mutex_
  std::set<RpcCall*> calls_;            // guarded by mutex_
  std::deque<RpcCall*> throttled_;      // guarded by mutex_; in the order of their coming
  std::deque<RpcCall*> without_place_;  // guarded by mutex_; likewise
  size_t places_taken_ = 0;             // guarded by mutex_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANT_CALLS_H_
