// Threads for calls that take long. The tenants take turns, and none gets more than its share.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_FAIR_WORKERS_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_FAIR_WORKERS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::service {

// Thread-safe.
class FairWorkers {
 public:
  using Work = std::function<void()>;

  // At most `per_tenant` of the `threads` work for one tenant. Uses fewer threads if the system
  // gives no more; RESOURCE_EXHAUSTED: it gives none.
  static absl::StatusOr<std::unique_ptr<FairWorkers>> Create(int threads, int per_tenant);
  // Carries out all submitted work, and waits for it.
  ~FairWorkers();

  void Submit(const std::string& tenant, Work work);

 private:
  struct Tenant {
    std::deque<Work> queue;
    int running = 0;
  };

  explicit FairWorkers(int per_tenant) : per_tenant_(per_tenant) {}
  void Run();
  // All under the mutex. Next: the tenant whose turn it is; end(): none has work to begin.
  std::map<std::string, Tenant>::iterator Next();

  const int per_tenant_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Tenant> tenants_;  // guarded by mutex_; those with something to do
  std::string last_;                       // guarded by mutex_; who had the last turn
  bool stopping_ = false;                  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_FAIR_WORKERS_H_
