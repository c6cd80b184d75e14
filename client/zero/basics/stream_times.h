// How long the trainer's streams took for each operator's work. Thread-safe: streams call it on
// their own threads.
#ifndef GEMINID_CLIENT_ZERO_BASICS_STREAM_TIMES_H_
#define GEMINID_CLIENT_ZERO_BASICS_STREAM_TIMES_H_

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "absl/time/time.h"

namespace geminid::zero {

class StreamTimes {
 public:
  explicit StreamTimes(std::function<absl::Time()> clock) : clock_(std::move(clock)) {}

  // Begun: a stream has reached the work of this operator, given by its number in the micro-batch.
  // Ended: the stream has completed that work.
  void Begun(size_t moment) {
    const std::lock_guard lock(mutex_);
    if (clock_) began_[moment] = clock_();
  }
  void Ended(size_t moment) {
    const std::lock_guard lock(mutex_);
    const auto began = began_.find(moment);
    if (clock_ && began != began_.end()) took_[moment] = clock_() - began->second;
  }

  // From now on nothing is measured, and the clock is never called.
  void Stop() {
    const std::lock_guard lock(mutex_);
    clock_ = nullptr;
  }

  // The durations of the operators that have ended.
  std::map<size_t, absl::Duration> Took() const {
    const std::lock_guard lock(mutex_);
    return took_;
  }

 private:
  mutable std::mutex mutex_;
  std::function<absl::Time()> clock_;
  std::map<size_t, absl::Time> began_;
  std::map<size_t, absl::Duration> took_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_STREAM_TIMES_H_
