// A histogram of durations, with fixed ranges.
#ifndef GEMINID_DAEMON_CORE_BASICS_TIME_HISTOGRAM_H_
#define GEMINID_DAEMON_CORE_BASICS_TIME_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/core/basics/time.h"

namespace geminid::core {

// Two ranges per power of ten, from 10 us (a small copy) to 30 s (a wait that users complain
// about). Not thread-safe. Cost of Add: a search among 14 bounds.
class TimeHistogram {
 public:
  // The upper bounds in nanoseconds, inclusive. One more range lies above the last.
  static constexpr std::array<int64_t, 14> kBoundsNanoseconds = {
      10'000,        30'000,        100'000,        300'000,       1'000'000,
      3'000'000,     10'000'000,    30'000'000,     100'000'000,   300'000'000,
      1'000'000'000, 3'000'000'000, 10'000'000'000, 30'000'000'000};
  static constexpr size_t kRanges = kBoundsNanoseconds.size() + 1;

  // A negative duration counts as zero.
  void Add(Duration took) {
    const int64_t nanoseconds = std::max<int64_t>(took.nanoseconds(), 0);
    const auto bound =
        std::lower_bound(kBoundsNanoseconds.begin(), kBoundsNanoseconds.end(), nanoseconds);
    ++counts_[static_cast<size_t>(bound - kBoundsNanoseconds.begin())];
    sum_ = sum_ + Duration::Nanoseconds(nanoseconds);
  }

  // The count of each range alone, not cumulative.
  const std::array<uint64_t, kRanges>& counts() const { return counts_; }
  Duration sum() const { return sum_; }

 private:
  std::array<uint64_t, kRanges> counts_{};
  Duration sum_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_BASICS_TIME_HISTOGRAM_H_
