// What a running daemon takes over from settings that were read again.
#ifndef GEMINID_DAEMON_CONFIG_RELOAD_H_
#define GEMINID_DAEMON_CONFIG_RELOAD_H_

#include <string>
#include <vector>

#include "daemon/config/settings.h"

namespace geminid::config {

struct Reload {
  Settings settings;                       // in force from now on
  std::vector<std::string> changed;        // "log_level: info -> debug"
  std::vector<std::string> needs_restart;  // the same of keys that stay as they were
};

// log_level, log_format, keep_time, gather_time, queue_ageing, yield_time, link_bytes_in_flight,
// quotas and what each tenant may have can change while sessions are attached; the rest waits for a
// restart. `now` has its memory filled in, `read` does not need it.
Reload MergeReload(const Settings& now, const Settings& read);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_RELOAD_H_
