// The engine's state after its last call, which any thread may read while another call waits.
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

// Allows one call of the engine at a time. Runs `end` at a call's end, before the next call begins.
// Does nothing in a forked child, where the thread that holds it may not exist.
class CallMutex {
 public:
  CallMutex(std::function<void()> end, std::function<bool()> is_forked)
      : end_(std::move(end)), is_forked_(std::move(is_forked)) {}

  void lock() {
    if (!is_forked_()) mutex_.lock();
  }
  void unlock() {
    if (is_forked_()) return;
    end_();
    mutex_.unlock();
  }

 private:
  const std::function<void()> end_;
  const std::function<bool()> is_forked_;
  std::mutex mutex_;
};

// Thread-safe.
class Published {
 public:
  // The input of the published statistics. They are computed again when the input has changed.
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

  // Later errors do not replace the first one.
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
