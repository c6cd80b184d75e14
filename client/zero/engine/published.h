// What any thread may know of the engine while a call waits: as the last call has left it.
#ifndef GEMINID_CLIENT_ZERO_ENGINE_PUBLISHED_H_
#define GEMINID_CLIENT_ZERO_ENGINE_PUBLISHED_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "client/zero/step/plan_tally.h"
#include "geminid/zero.h"

namespace geminid::zero {

// One call of the engine at a time. `end` is called when a call ends, before the next one begins.
class CallMutex {
 public:
  explicit CallMutex(std::function<void()> end) : end_(std::move(end)) {}

  void lock() { mutex_.lock(); }
  void unlock() {
    end_();
    mutex_.unlock();
  }

 private:
  const std::function<void()> end_;
  std::mutex mutex_;
};

// Thread-safe.
class Published {
 public:
  // What published statistics were made from: others are made when it has changed.
  struct Basis {
    uint64_t host_bytes = 0;
    uint64_t device_bytes = 0;
    PlanTally tally{};

    bool operator==(const Basis&) const = default;
  };

  bool IsOf(const Basis& basis) const {
    const std::lock_guard lock(mutex_);
    return basis == basis_;
  }
  void Set(Basis basis, Statistics statistics) {
    const std::lock_guard lock(mutex_);
    basis_ = std::move(basis);
    statistics_ = std::move(statistics);
  }
  Statistics statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

  // The first error stays.
  void Fail(const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    health_.Update(status);
  }
  absl::Status health() const {
    const std::lock_guard lock(mutex_);
    return health_;
  }

 private:
  mutable std::mutex mutex_;
  Basis basis_;
  Statistics statistics_;
  absl::Status health_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_ENGINE_PUBLISHED_H_
