// Reads the hub for the metrics page, and keeps an eye on the engine's invariants.
#ifndef GEMINID_DAEMON_SERVICE_MONITOR_H_
#define GEMINID_DAEMON_SERVICE_MONITOR_H_

#include <prometheus/collectable.h>

#include <cstdint>
#include <string>

#include "daemon/core/token_bucket.h"
#include "daemon/metrics/families.h"
#include "daemon/metrics/http_server.h"
#include "daemon/service/hub.h"

namespace geminid::service {

// Belongs to the event loop's thread.
class Monitor : public prometheus::Collectable {
 public:
  Monitor(Hub* hub, std::string version) : hub_(hub), version_(std::move(version)) {}

  // One reading, at the time of the call.
  std::vector<prometheus::MetricFamily> Collect() const override;

  // "/metrics" and "/healthz". Whoever asks more than a few times a second gets the last page
  // again.
  metrics::HttpResponse Handle(const std::string& path) const;

 private:
  // The engine's self-check looks at so many chunks, a millisecond or two of them, at most once in
  // this time.
  static constexpr size_t kChecked = 4096;
  static constexpr int64_t kCheckEveryNanoseconds = 1'000'000'000;

  metrics::Reading Read() const;
  void CheckInvariants(const core::Engine& engine) const;

  Hub* const hub_;
  const std::string version_;
  mutable int64_t next_check_ = 0;
  mutable core::ChunkPlace checked_to_;
  mutable uint64_t violations_ = 0;
  mutable core::TokenBucket pages_{{.per_second = 10, .burst = 50}, Now()};
  mutable std::string page_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_MONITOR_H_
