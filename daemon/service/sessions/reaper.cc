#include "daemon/service/sessions/reaper.h"

#include "base/start_thread.h"
#include "base/status_macros.h"
#include "daemon/os/priority.h"

namespace geminid::service {

absl::Status Reaper::Start() {
  GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Run(); }));
  return absl::OkStatus();
}

Reaper::~Reaper() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Reaper::Destroy(Garbage garbage) {
  if (garbage.empty()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    garbage_.push_back(std::move(garbage));
  }
  changed_.notify_one();
}

void Reaper::Run() {
  os::GiveWay();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_ || !garbage_.empty()) {
    changed_.wait(lock, [this] { return stopping_ || !garbage_.empty(); });
    std::vector<Garbage> mine = std::exchange(garbage_, {});
    lock.unlock();
    for (Garbage& garbage : mine) destroy_(std::move(garbage));
    mine.clear();
    lock.lock();
  }
}

}  // namespace geminid::service
