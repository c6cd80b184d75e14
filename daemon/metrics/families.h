// One reading of the daemon as Prometheus metrics. Pure: the same reading gives the same page.
#ifndef GEMINID_DAEMON_METRICS_FAMILIES_H_
#define GEMINID_DAEMON_METRICS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/engine.h"
#include "daemon/metrics/session_counters.h"

namespace geminid::metrics {

struct SessionReading {
  SessionLabels labels;
  core::SessionState state = core::SessionState::kAttached;
  uint64_t plan_transfer_bytes = 0;
  uint64_t plan_transfer_bytes_lower_bound = 0;
};

struct ProcessReading {
  double cpu_seconds = 0;
  double start_time_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  uint64_t open_fds = 0;
  uint64_t max_fds = 0;
  uint64_t threads = 0;
};

struct Reading {
  std::string version;
  struct AccountReading {
    core::Account account;
    core::AccountTotals totals;
  };
  struct DeviceReading {
    core::TransferTotals transfers;
    std::array<uint32_t, core::kDirections> tickets_in_flight{};
    uint64_t overdue_tickets = 0;
  };
  std::vector<AccountReading> accounts;
  std::vector<DeviceReading> devices;  // by index
  std::vector<core::LedgerLine> lines;
  std::vector<SessionReading> sessions;         // in the order of their attachment
  std::vector<SessionCounters::Series> series;  // those of ended sessions too
  struct LimitReading {
    std::string name;  // as in the configuration
    uint64_t total = 0;
    uint64_t used = 0;
  };
  std::vector<LimitReading> limits;               // of all tenants together
  std::map<std::string, uint64_t> tenant_limits;  // of each tenant, by name; 0: by the machine
  std::vector<core::Refusals::Row> refusals;
  core::EngineCounters counters;
  uint64_t overhead_bytes = 0;  // shared memory of the daemon itself
  uint64_t invariant_violations = 0;
  ProcessReading process;
};

std::vector<prometheus::MetricFamily> Families(const Reading& reading);

// The page of the text format, version 0.0.4.
std::string TextPage(const std::vector<prometheus::MetricFamily>& families);

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_FAMILIES_H_
