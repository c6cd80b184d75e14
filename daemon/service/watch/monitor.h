// Reads the hub for the metrics page, answers the probes, and checks the accounts.
#ifndef GEMINID_DAEMON_SERVICE_WATCH_MONITOR_H_
#define GEMINID_DAEMON_SERVICE_WATCH_MONITOR_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/transfers/token_bucket.h"
#include "daemon/metrics/http_server.h"
#include "daemon/metrics/reading.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/watch/health.h"
#include "daemon/service/watch/vitals.h"

namespace geminid::service {

// Belongs to one thread, which need not be the event loop's.
class Monitor {
 public:
  // Both pointers must outlive it.
  Monitor(SessionHub* hub, const Vitals* vitals, std::string version)
      : hub_(hub), vitals_(vitals), version_(std::move(version)) {}

  // "/metrics", the pages and the probes of health.h. Metrics that are asked for more than a few
  // times a second are those of the last reading; plans that are asked for so often are refused.
  metrics::HttpResponse Handle(const std::string& path);

  // If a check is due: checks a part of the accounts, a millisecond or two under the hub's mutex,
  // and whether clients find the daemon's sockets.
  void CheckIfDue(int64_t now_nanoseconds);
  int64_t next_check() const { return next_check_; }

 private:
  // The self-check looks at this many chunks in this time.
  static constexpr size_t kChecked = 4096;
  static constexpr int64_t kCheckEveryNanoseconds = 5'000'000'000;
  // Further contradictions say nothing new.
  static constexpr size_t kMostContradictions = 16;

  void CheckAccounts();
  void CheckSockets();
  metrics::Reading Read() const;
  HealthReading ReadLife() const;
  HealthReading ReadHealth() const;
  bool IsDrained() const;
  metrics::HttpResponse ShowPlan(uint64_t session);

  SessionHub* const hub_;
  const Vitals* const vitals_;
  const std::string version_;
  int64_t next_check_ = 0;
  core::ChunkPlace checked_to_;
  uint64_t checks_ = 0;
  std::set<std::string> contradictions_;
  std::vector<std::string> lost_sockets_;  // at the last check
  core::TokenBucket pages_{{.per_second = 10, .burst = 50}, Now()};
  core::TokenBucket plans_{{.per_second = 2, .burst = 20}, Now()};
  std::string page_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_WATCH_MONITOR_H_
