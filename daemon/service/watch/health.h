// The answers of the health probes (/livez, /readyz, /healthz), from a reading of the daemon.
// Pure.
#ifndef GEMINID_DAEMON_SERVICE_WATCH_HEALTH_H_
#define GEMINID_DAEMON_SERVICE_WATCH_HEALTH_H_

#include <string>
#include <vector>

#include "daemon/core/basics/time.h"
#include "daemon/metrics/http_server.h"

namespace geminid::service {

// A loop whose turn takes this long is stuck. A normal turn takes at most a four-thousandth of it.
// systemd's watchdog waits twice as long (WatchdogSec= of the unit that we ship).
inline constexpr core::Duration kLongestTurn = core::Duration::Seconds(10);

struct HealthReading {
  bool serving = false;
  bool stopping = false;
  bool drained = false;                     // by the operator: no new jobs
  core::Duration turn;                      // how long the event loop has been at its present turn
  std::vector<std::string> contradictions;  // of the accounts, found since the start
  std::vector<std::string> gpus_without_memory;  // a line for each without an agent or unhealthy
  bool some_device_serves = true;                // at least one has memory to give
  bool sessions_survive = true;                  // the daemon, if they are to
  std::vector<std::string> lost_sockets;  // a line for each that clients do not find any more
};

// Each answers 200, or 503 with a line per reason.
//   /livez: the event loop turns. If not, only a restart of the daemon helps.
//   /readyz: new jobs may come. The daemon lives and serves, is neither stopping nor drained, its
//     accounts add up, clients find its sockets, and at least one device has memory to give.
//   /healthz: the daemon lives, its accounts add up, clients find its sockets, its sessions would
//     survive it, all of its GPUs' agents serve, and none of these GPUs is unhealthy.
metrics::HttpResponse Livez(const HealthReading& reading);
metrics::HttpResponse Readyz(const HealthReading& reading);
metrics::HttpResponse Healthz(const HealthReading& reading);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_WATCH_HEALTH_H_
