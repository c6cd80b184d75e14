// A point in time that waits are measured against.
#ifndef GEMINID_BASE_DEADLINE_H_
#define GEMINID_BASE_DEADLINE_H_

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace geminid::base {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // InfiniteDuration() becomes a century: the clock cannot represent more.
  static Deadline In(absl::Duration timeout) {
    constexpr absl::Duration kForEver = absl::Hours(24 * 365 * 100);
    const absl::Duration bounded = std::clamp(timeout, absl::ZeroDuration(), kForEver);
    return Deadline(Clock::now() + absl::ToChronoNanoseconds(bounded));
  }

  Clock::time_point time() const { return time_; }
  bool Passed() const { return Clock::now() >= time_; }
  // The remaining time, never negative.
  std::chrono::nanoseconds Left() const {
    return std::max<std::chrono::nanoseconds>(time_ - Clock::now(), std::chrono::nanoseconds(0));
  }
  // For poll(2): rounded up, so that a wait does not end early and spin.
  int LeftMilliseconds(int at_most) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(Left()).count();
    return static_cast<int>(std::min<decltype(left)>(left, at_most));
  }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}
  Clock::time_point time_;
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_DEADLINE_H_
