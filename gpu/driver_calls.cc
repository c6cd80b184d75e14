#include "gpu/driver_calls.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

namespace geminid::gpu {
namespace {

using std::chrono::nanoseconds;

constexpr int64_t kOutside = 0;

int64_t Now() {
  return std::chrono::duration_cast<nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The begin times of all threads that have used the driver.
struct Threads {
  std::mutex mutex;
  std::set<const std::atomic<int64_t>*> began;  // guarded by mutex
};
Threads& AllThreads() {
  static auto* const threads = new Threads;
  return *threads;
}

struct ThisThread {
  ThisThread() {
    const std::lock_guard lock(AllThreads().mutex);
    AllThreads().began.insert(&began);
  }
  ~ThisThread() {
    const std::lock_guard lock(AllThreads().mutex);
    AllThreads().began.erase(&began);
  }
  std::atomic<int64_t> began = kOutside;
  int depth = 0;
};
ThisThread& Mine() {
  thread_local ThisThread mine;
  return mine;
}

}  // namespace

DriverCall::DriverCall() {
  if (Mine().depth++ == 0) Mine().began.store(Now(), std::memory_order_relaxed);
}

DriverCall::~DriverCall() {
  if (--Mine().depth == 0) Mine().began.store(kOutside, std::memory_order_relaxed);
}

std::optional<nanoseconds> LongestDriverCall() {
  const int64_t now = Now();
  int64_t first = now;
  bool any = false;
  const std::lock_guard lock(AllThreads().mutex);
  for (const std::atomic<int64_t>* const began : AllThreads().began) {
    const int64_t since = began->load(std::memory_order_relaxed);
    if (since == kOutside) continue;
    any = true;
    first = std::min(first, since);
  }
  if (!any) return std::nullopt;
  return nanoseconds(now - first);
}

}  // namespace geminid::gpu
