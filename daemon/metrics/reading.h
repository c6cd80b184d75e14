// All values that one page of metrics is made from.
#ifndef GEMINID_DAEMON_METRICS_READING_H_
#define GEMINID_DAEMON_METRICS_READING_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/basics/time_histogram.h"
#include "daemon/core/engine/engine.h"
#include "daemon/metrics/session_counters.h"
#include "proto/shm/batch_numbers.h"
#include "proto/shm/host_registration.h"

namespace geminid::metrics {

struct PlanReading {
  uint64_t transfer_bytes = 0;
  uint64_t lower_bound_bytes = 0;
};

struct SessionReading {
  shm::SessionId id{};
  std::string tenant;
  core::SessionState state = core::SessionState::kAttached;
  shm::DeviceIndex device{};
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
  uint64_t disk_file_bytes = 0;  // as the session's client reports
  shm::BatchNumbers batch{};     // as the session's client reports
  std::optional<PlanReading> plan{};
  std::optional<shm::HostRegistration> registration{};
};

// A value is absent where the kernel did not tell it.
struct ProcessReading {
  double cpu_seconds = 0;
  std::optional<double> start_time_seconds{};
  std::optional<uint64_t> resident_bytes{};
  std::optional<uint64_t> virtual_bytes{};
  std::optional<uint64_t> open_fds{};
  std::optional<uint64_t> max_fds{};
  std::optional<uint64_t> threads{};
};

struct DeviceReading {
  core::TransferTotals transfers;
  std::array<core::LinkReading, core::kDirections> links{};
  uint64_t overdue_tickets = 0;
};

struct GpuReading {
  uint32_t device = 0;
  bool serving = false;  // whether the GPU's agent serves
  uint32_t restarts = 0;
  uint64_t total_bytes = 0;  // 0: the agent has not said
  uint64_t free_bytes = 0;
  uint64_t slab_bytes = 0;
  std::string health = "unknown";  // one of kGpuHealths
  // These are absent where the driver does not report them.
  std::optional<uint64_t> uncorrected_errors{};  // since the driver was loaded
  std::optional<uint64_t> uncorrected_errors_ever{};
  std::optional<bool> retired_pages_pending{};
  std::optional<bool> row_remap_pending{};
  std::optional<bool> row_remap_failed{};
  std::map<uint32_t, uint64_t> xids{};  // count by Xid number
};
inline constexpr std::array<const char*, 4> kGpuHealths = {"healthy", "degraded", "unhealthy",
                                                           "unknown"};

// One tenant on one account.
struct TenantReading {
  std::string tenant;
  core::Account account;
  uint64_t charged_bytes = 0;
  uint64_t limit_bytes = core::kUnlimited;
  uint64_t guaranteed_bytes = 0;
};

struct UsageAndLimit {
  uint64_t used = 0;
  uint64_t limit = 0;
};

// Sessions that this daemon took over from an earlier daemon.
struct TakeOverReading {
  uint64_t sessions = 0;
  uint64_t lost = 0;
  double seconds = 0;
};

// Requests by people, by outcome.
struct RequestsReading {
  uint64_t done = 0;
  uint64_t refused = 0;
  uint64_t gone_back = 0;
};

struct JobsReading {
  std::map<core::JobState, uint64_t> by_state;
  std::optional<double> oldest_wait_timestamp_seconds{};
  core::JobCounters counters;
  uint64_t ranks_changed = 0;  // by the daemon, to share the node
  uint64_t ranks_not_changed = 0;
  RequestsReading scales{};  // for another number of ranks
  RequestsReading moves{};   // to another host
  uint64_t shrunk = 0;       // jobs that went on with fewer ranks after a death
};

struct CallReading {
  core::TimeHistogram seconds;
  std::map<std::string, uint64_t> errors;  // by the name of the status code
};

enum class DaemonPhase { kServing, kDrained, kStopping };

struct Reading {
  // --- the daemon
  std::string version;
  uint64_t epoch = 0;
  DaemonPhase phase = DaemonPhase::kServing;
  bool last_reload_good = true;
  double last_good_reload_timestamp_seconds = 0;
  std::optional<bool> sessions_survive{};  // the daemon; absent: they are not to
  uint64_t lost_sockets = 0;               // that clients do not find any more
  uint64_t invariant_checks = 0;
  uint64_t invariant_violations = 0;
  uint64_t overhead_bytes = 0;  // shared memory of the daemon itself
  ProcessReading process;
  // --- memory
  std::vector<std::pair<core::Account, core::AccountTotals>> accounts;
  std::vector<core::LedgerLine> lines;
  std::vector<TenantReading> tenants;
  std::map<shm::Tier, core::TimeHistogram> allocations;
  // --- sessions and jobs
  std::vector<SessionReading> sessions;
  SessionCounters::Reading counted;
  TakeOverReading take_over;
  UsageAndLimit session_limit;
  UsageAndLimit chunk_limit;
  UsageAndLimit plan_memory_bytes;
  JobsReading jobs;
  // --- links and requests
  std::vector<DeviceReading> devices;  // by index
  std::vector<GpuReading> gpus;
  core::EngineCounters counters;
  std::map<std::string, CallReading> calls;  // by the method's label
  std::vector<core::Refusals::Row> refusals;
};

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_READING_H_
