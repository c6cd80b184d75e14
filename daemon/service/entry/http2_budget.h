// Limits how much a tenant's connections may ask of gRPC.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_BUDGET_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_BUDGET_H_

#include <cstdint>

#include "daemon/core/basics/time.h"
#include "daemon/core/transfers/token_bucket.h"
#include "daemon/service/entry/http2_inspector.h"

namespace geminid::service {

// The cost of bytes that were read already: paid off afterwards, a rate's worth every second.
class Debt {
 public:
  void Add(double cost, core::Rate rate, core::Time now);
  // The time until no more than the burst is owed; 0: now.
  int64_t NanosecondsLeft(core::Rate rate, core::Time now) const;
  double Owed(core::Rate rate, core::Time now) const;

 private:
  double owed_ = 0;
  core::Time since_{};
};

// The budget of one tenant. Streams and frames follow the tenant's rate of calls; a call takes
// about ten frames. A client resets a stream when it gives a call up, which is rare.
class Http2Budget {
 public:
  static constexpr double kStreamsPerCall = 2;
  static constexpr double kFramesPerCall = 20;
  static constexpr double kLeastCallsPerSecond = 50;
  static constexpr core::Rate kResets = {.per_second = 100, .burst = 400};

  // `calls`: how many the tenant may make.
  void Charge(const Http2Cost& cost, core::Rate calls, core::Time now);
  // The time until the tenant's connections may be read again; 0: now.
  int64_t NanosecondsLeft(core::Rate calls, core::Time now) const;
  // Whether it is like a new one.
  bool IsUnused(core::Rate calls, core::Time now) const;

 private:
  Debt streams_;
  Debt resets_;
  Debt frames_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_BUDGET_H_
