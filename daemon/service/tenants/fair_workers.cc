#include "daemon/service/tenants/fair_workers.h"

#include <utility>

#include "base/start_thread.h"
#include "daemon/os/priority.h"

namespace geminid::service {

absl::StatusOr<std::unique_ptr<FairWorkers>> FairWorkers::Create(int threads, int per_tenant) {
  std::unique_ptr<FairWorkers> workers(new FairWorkers(per_tenant));
  for (int i = 0; i < threads; ++i) {
    absl::StatusOr<std::thread> thread = base::StartThread([raw = workers.get()] { raw->Run(); });
    if (!thread.ok() && i == 0) return thread.status();
    if (!thread.ok()) break;  // fewer will do
    workers->threads_.push_back(*std::move(thread));
  }
  return workers;
}

FairWorkers::~FairWorkers() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void FairWorkers::Submit(const std::string& tenant, Work work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tenants_[tenant].queue.push_back(std::move(work));
  }
  changed_.notify_one();
}

std::map<std::string, FairWorkers::Tenant>::iterator FairWorkers::Next() {
  auto candidate = tenants_.upper_bound(last_);
  for (size_t i = 0; i < tenants_.size(); ++i, ++candidate) {
    if (candidate == tenants_.end()) candidate = tenants_.begin();
    if (!candidate->second.queue.empty() && candidate->second.running < per_tenant_) {
      return candidate;
    }
  }
  return tenants_.end();
}

void FairWorkers::Run() {
  os::GiveWay();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto turn = Next();
    if (turn == tenants_.end()) {
      if (stopping_ && tenants_.empty()) return;
      changed_.wait(lock);
      continue;
    }
    last_ = turn->first;
    Work work = std::move(turn->second.queue.front());
    turn->second.queue.pop_front();
    ++turn->second.running;
    lock.unlock();
    work();
    work = nullptr;  // its contents may take a while to destroy
    lock.lock();
    if (--turn->second.running == 0 && turn->second.queue.empty()) tenants_.erase(turn);
    // This tenant's share may have been the reason that the rest of its queue waited.
    changed_.notify_all();
  }
}

}  // namespace geminid::service
