// Computes when a copy would complete on a link of given speed. Pure.
#ifndef GEMINID_CLIENT_DEVICE_HOST_LINK_PACER_H_
#define GEMINID_CLIENT_DEVICE_HOST_LINK_PACER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace geminid::device {

// A link carries one copy after another at its bandwidth. A copy arrives one latency after its last
// byte was sent. A caller that is late does not delay later copies: the link's own time counts.
class LinkPacer {
 public:
  using Clock = std::chrono::steady_clock;

  // `bytes_per_second` 0: unlimited.
  LinkPacer(double bytes_per_second, double latency_seconds)
      : bytes_per_second_(bytes_per_second), latency_(Nanoseconds(latency_seconds)) {}

  // When the copy of `bytes` that was submitted at `submitted_at` is complete.
  Clock::time_point Arrival(Clock::time_point submitted_at, uint64_t bytes) {
    free_at_ = std::max(free_at_, submitted_at);
    if (bytes_per_second_ > 0) {
      free_at_ += Nanoseconds(static_cast<double>(bytes) / bytes_per_second_);
    }
    return free_at_ + latency_;
  }

 private:
  static Clock::duration Nanoseconds(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  const double bytes_per_second_;
  const Clock::duration latency_;
  Clock::time_point free_at_{};
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_LINK_PACER_H_
