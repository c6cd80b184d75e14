#include "daemon/service/sessions/waker.h"

#include <algorithm>
#include <chrono>

#include "base/start_thread.h"
#include "base/status_macros.h"
#include "daemon/service/sessions/now.h"

namespace geminid::service {
namespace {

// A tenant's wake-ups get one tenth of a processor's time.
constexpr int64_t kPauses = 9;

}  // namespace

bool WakeUpSchedule::IsLeftToThread(const std::string& tenant, core::Time now) const {
  const auto found = tenants_.find(tenant);
  return found != tenants_.end() && (found->second.suspected || now < found->second.until);
}

void WakeUpSchedule::Add(const SleepingClientPtr& sleeper, SleepingClient::End end) {
  SleepingClient::End& waiting = tenants_[sleeper->tenant()].waiting[sleeper];
  waiting = std::max(waiting, end);
}

WakeUpSchedule::WakeUp WakeUpSchedule::Next(core::Time now) {
  auto candidate = tenants_.upper_bound(last_);
  for (size_t i = 0; i < tenants_.size(); ++i, ++candidate) {
    if (candidate == tenants_.end()) candidate = tenants_.begin();
    auto& [name, tenant] = *candidate;
    if (tenant.waiting.empty() || tenant.next_at > now) continue;
    last_ = name;
    const auto first = tenant.waiting.begin();
    WakeUp turn = {first->first, first->second};
    tenant.waiting.erase(first);
    return turn;
  }
  return {};
}

std::optional<core::Time> WakeUpSchedule::NextAt() const {
  std::optional<core::Time> next;
  for (const auto& [name, tenant] : tenants_) {
    if (!tenant.waiting.empty()) next = std::min(next.value_or(tenant.next_at), tenant.next_at);
  }
  return next;
}

void WakeUpSchedule::Took(const std::string& name, core::Duration processor, core::Time now) {
  Tenant& tenant = tenants_[name];
  tenant.suspected = false;
  tenant.next_at = now + core::Duration::Nanoseconds(kPauses * processor.nanoseconds());
  if (processor < kLasting) return;
  tenant.penalty = std::clamp(tenant.penalty + tenant.penalty, kShortest, kLongest);
  tenant.until = now + tenant.penalty;
}

void WakeUpSchedule::DropLasting(core::Time now) {
  for (auto& [name, tenant] : tenants_) {
    if (IsLeftToThread(name, now)) tenant.waiting.clear();
  }
}

void WakeUpSchedule::Forget(core::Time now) {
  std::erase_if(tenants_, [now](const auto& entry) {
    const Tenant& tenant = entry.second;
    return tenant.waiting.empty() && !tenant.suspected && tenant.next_at <= now &&
           tenant.until + tenant.penalty <= now;
  });
}

absl::Status Waker::Start() {
  GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Run(); }));
  return absl::OkStatus();
}

Waker::~Waker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Waker::Wake(const SleepingClientPtr& sleeper) {
  if (knows_anybody_.load(std::memory_order_relaxed)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (turns_.IsLeftToThread(sleeper->tenant(), Now())) {
      turns_.Add(sleeper, SleepingClient::End::kNothing);
      changed_.notify_one();
      return;
    }
  }
  const core::Time began = Now();
  sleeper->Wake(SleepingClient::End::kNothing);
  if (Now() - began < WakeUpSchedule::kLasting) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  turns_.Suspect(sleeper->tenant());
  knows_anybody_.store(true, std::memory_order_relaxed);
}

void Waker::End(const SleepingClientPtr& sleeper, SleepingClient::End end) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    turns_.Add(sleeper, end);
    knows_anybody_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_one();
}

bool Waker::RunOne(std::unique_lock<std::mutex>* lock) {
  WakeUpSchedule::WakeUp turn = turns_.Next(Now());
  if (turn.sleeper == nullptr) return false;
  lock->unlock();
  const std::string tenant = turn.sleeper->tenant();
  const int64_t began = os::ThreadNanoseconds();
  turn.sleeper->Wake(turn.end);
  const core::Duration took = core::Duration::Nanoseconds(os::ThreadNanoseconds() - began);
  turn.sleeper.reset();
  lock->lock();
  turns_.Took(tenant, took, Now());
  return true;
}

void Waker::Run() {
  // Without GiveWay: the loop takes this mutex too, and a slow thread would keep it waiting.
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (stopping_) turns_.DropLasting(Now());
    if (RunOne(&lock)) continue;
    const std::optional<core::Time> next = turns_.NextAt();
    if (stopping_ && !next.has_value()) return;
    turns_.Forget(Now());
    knows_anybody_.store(!turns_.knows_nobody(), std::memory_order_relaxed);
    if (next.has_value()) {
      changed_.wait_for(lock, std::chrono::nanoseconds((*next - Now()).nanoseconds()));
    } else if (turns_.knows_nobody()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(WakeUpSchedule::kShortest.nanoseconds()));
    }
  }
}

}  // namespace geminid::service
