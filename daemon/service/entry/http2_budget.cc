#include "daemon/service/entry/http2_budget.h"

#include <algorithm>

namespace geminid::service {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

core::Rate Times(core::Rate calls, double factor) {
  // A daemon that allows few calls still has connections to set up.
  const double least = std::max(1.0, Http2Budget::kLeastCallsPerSecond / calls.per_second);
  return {.per_second = calls.per_second * least * factor, .burst = calls.burst * least * factor};
}

}  // namespace

double Debt::Owed(core::Rate rate, core::Time now) const {
  const double paid = now > since_ ? (now - since_).seconds() * rate.per_second : 0;
  return std::max(0.0, owed_ - paid);
}

void Debt::Add(double cost, core::Rate rate, core::Time now) {
  owed_ = Owed(rate, now) + cost;
  since_ = std::max(since_, now);
}

int64_t Debt::NanosecondsLeft(core::Rate rate, core::Time now) const {
  const double beyond = Owed(rate, now) - rate.burst;
  if (beyond <= 0) return 0;
  // One more, so that rounding ends no wait too early.
  return 1 + static_cast<int64_t>(beyond / rate.per_second * kNanosecondsPerSecond);
}

void Http2Budget::Charge(const Http2Cost& cost, core::Rate calls, core::Time now) {
  streams_.Add(cost.streams, Times(calls, kStreamsPerCall), now);
  resets_.Add(cost.resets, kResets, now);
  frames_.Add(cost.frames, Times(calls, kFramesPerCall), now);
}

int64_t Http2Budget::NanosecondsLeft(core::Rate calls, core::Time now) const {
  return std::max({streams_.NanosecondsLeft(Times(calls, kStreamsPerCall), now),
                   resets_.NanosecondsLeft(kResets, now),
                   frames_.NanosecondsLeft(Times(calls, kFramesPerCall), now)});
}

bool Http2Budget::IsUnused(core::Rate calls, core::Time now) const {
  return streams_.Owed(Times(calls, kStreamsPerCall), now) == 0 &&
         resets_.Owed(kResets, now) == 0 && frames_.Owed(Times(calls, kFramesPerCall), now) == 0;
}

}  // namespace geminid::service
