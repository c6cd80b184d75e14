// Time in the core is handed in by the caller, never read from a clock.
#ifndef GEMINID_DAEMON_CORE_BASICS_TIME_H_
#define GEMINID_DAEMON_CORE_BASICS_TIME_H_

#include <compare>
#include <cstdint>

namespace geminid::core {

// A span of time in nanoseconds. 292 years fit; callers stay far from that.
class Duration {
 public:
  constexpr Duration() = default;
  static constexpr Duration Nanoseconds(int64_t n) { return Duration(n); }
  static constexpr Duration Milliseconds(int64_t n) { return Duration(n * 1'000'000); }
  static constexpr Duration Seconds(int64_t n) { return Duration(n * 1'000'000'000); }

  constexpr int64_t nanoseconds() const { return nanoseconds_; }
  constexpr double seconds() const { return static_cast<double>(nanoseconds_) * 1e-9; }
  constexpr auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration other) const {
    return Duration(nanoseconds_ + other.nanoseconds_);
  }
  constexpr Duration operator-(Duration other) const {
    return Duration(nanoseconds_ - other.nanoseconds_);
  }
  // How many whole `other` fit; rounds toward zero.
  constexpr int64_t operator/(Duration other) const { return nanoseconds_ / other.nanoseconds_; }

 private:
  constexpr explicit Duration(int64_t n) : nanoseconds_(n) {}
  int64_t nanoseconds_ = 0;
};

// A point on one monotonic clock, the same for all calls of one engine.
class Time {
 public:
  constexpr Time() = default;
  static constexpr Time FromNanoseconds(int64_t n) { return Time(n); }

  constexpr int64_t nanoseconds() const { return nanoseconds_; }
  constexpr auto operator<=>(const Time&) const = default;
  constexpr Time operator+(Duration span) const { return Time(nanoseconds_ + span.nanoseconds()); }
  constexpr Duration operator-(Time other) const {
    return Duration::Nanoseconds(nanoseconds_ - other.nanoseconds_);
  }

 private:
  constexpr explicit Time(int64_t n) : nanoseconds_(n) {}
  int64_t nanoseconds_ = 0;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_BASICS_TIME_H_
