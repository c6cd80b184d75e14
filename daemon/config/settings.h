// What the daemon was told, after all of it was read, checked and given units.
//
// A flag beats the environment, which beats the file, which beats the built-in value; where each
// value came from is kept. Everything wrong is reported at once, each problem with its place.
#ifndef GEMINID_DAEMON_CONFIG_SETTINGS_H_
#define GEMINID_DAEMON_CONFIG_SETTINGS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/config/device_list.h"
#include "daemon/config/tenant_by.h"
#include "daemon/config/tenant_quota.h"
#include "daemon/config/tenant_shares.h"
#include "daemon/os/log.h"
#include "geminid/v1/config.pb.h"

namespace geminid::config {

// Appended to the socket's path: where metrics and probes are served besides. Shorter than that of
// the attach socket, so that a path that leaves room for one leaves it for the other.
inline constexpr char kHttpSuffix[] = ".http";

// The origin of a value that was computed from what the machine has.
inline constexpr char kFromMachine[] = "built-in, from the memory of this machine";

struct Origin {
  std::string key;
  std::string value;
  std::string
      origin;  // "flag --socket", "environment GEMINID_SOCKET", "file PATH:LINE", "built-in"
};

struct Settings {
  std::string socket;
  std::string metrics_host;  // empty: no metrics port
  uint16_t metrics_port = 0;
  bool metrics_built_in = false;       // nobody asked for this port: another daemon may have it
  std::optional<uint64_t> host_bytes;  // none: the daemon's own share of the RAM
  std::vector<DeviceSetting> devices;  // by index; empty: one host device with such a share
  mode_t socket_mode = 0;
  absl::Duration keep_time;
  absl::Duration restart_time;
  os::LogLevel log_level = os::LogLevel::kInfo;
  os::LogFormat log_format = os::LogFormat::kText;
  uint32_t tickets_in_flight = 0;
  uint64_t bytes_in_flight = 0;
  uint64_t link_bytes_in_flight = 0;  // of all sessions of a device; 0: no such limit
  absl::Duration gather_time;
  absl::Duration queue_ageing;
  absl::Duration yield_time;
  absl::Duration sharing_interval;  // 0: the daemon changes no job's ranks
  uint32_t sharing_ranks = 0;       // 0: one per GPU, or per processor
  uint32_t sessions = 0;  // of all tenants
  uint32_t chunks = 0;
  uint64_t plan_memory_bytes = 0;
  TenantBy tenant_by = TenantBy::kContainer;
  TenantShares shares;
  std::vector<TenantQuota> quotas;
  bool huge_pages = false;

  v1::Config effective;         // the same, as texts
  std::vector<Origin> origins;  // one per key, in the order of config.proto
};

struct SettingsSources {
  std::string config_path;  // flag --config; empty: $GEMINID_CONFIG, or no file
  // By key; only those that were given. "device" may hold several, separated by commas.
  std::map<std::string, std::string> flags;
  // The value of an environment variable, if set. Only the variables in settings.cc are asked for.
  std::function<std::optional<std::string>(const std::string& name)> environment;
};

// INVALID_ARGUMENT with one line per problem, each beginning with the place: "PATH:LINE:COLUMN: ",
// "flag --host-memory: " or "environment GEMINID_SOCKET: ".
absl::StatusOr<Settings> ResolveSettings(const SettingsSources& sources);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_SETTINGS_H_
