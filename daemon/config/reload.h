// Decides which newly read settings a running daemon takes over.
#ifndef GEMINID_DAEMON_CONFIG_RELOAD_H_
#define GEMINID_DAEMON_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "daemon/config/settings.h"

namespace geminid::config {

struct Reload {
  Settings settings;                       // in force from now on
  std::vector<std::string> changed;        // "log_level: info -> debug"
  std::vector<std::string> needs_restart;  // likewise, for keys that keep their old values
};

// While sessions are attached these may change: log_level, log_format, keep_time, gather_time,
// queue_ageing, yield_time, link_bytes_in_flight, quotas and the keys in kShareKeys. All others
// need a restart. The memory of `now` must have been filled in; that of `read` need not be.
Reload MergeReload(const Settings& now, const Settings& read);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_RELOAD_H_
