// The daemon's settings, after all sources were read, checked and converted to numbers.
//
// A flag beats the environment, which beats the file, which beats the built-in value. The origin of
// each value is kept. All problems are reported at once, each with its place.
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

// Suffix of the socket that also serves metrics and probes. It is shorter than the suffix of the
// attach socket, so a path that leaves room for that one leaves room for this one.
inline constexpr char kHttpSuffix[] = ".http";

// Origin of a value that was computed from the memory of this machine.
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
  bool metrics_built_in = false;       // the port is the built-in one: another daemon may have it
  std::optional<uint64_t> host_bytes;  // none: computed from the machine's RAM
  std::vector<DeviceSetting> devices;  // by index; empty: one host device, likewise
  mode_t socket_mode = 0;
  absl::Duration keep_time;
  absl::Duration restart_time;
  os::LogLevel log_level = os::LogLevel::kInfo;
  os::LogFormat log_format = os::LogFormat::kText;
  uint32_t tickets_in_flight = 0;
  uint64_t bytes_in_flight = 0;
  uint64_t link_bytes_in_flight = 0;  // all sessions of a device; 0: no limit
  absl::Duration gather_time;
  absl::Duration queue_ageing;
  absl::Duration yield_time;
  absl::Duration sharing_interval;  // 0: the daemon never changes a job's ranks
  uint32_t sharing_ranks = 0;       // 0: one per GPU, or per processor without GPUs
  uint32_t sessions = 0;  // of all tenants
  uint32_t chunks = 0;
  uint64_t plan_memory_bytes = 0;
  TenantBy tenant_by = TenantBy::kContainer;
  TenantShares shares;
  std::vector<TenantQuota> quotas;
  bool huge_pages = false;

  v1::Config effective;         // the same settings, as texts
  std::vector<Origin> origins;  // one per key, in the order of config.proto
};

struct SettingsSources {
  std::string config_path;  // value of --config; empty: $GEMINID_CONFIG, or no file
  // By key; only flags that were given. "device" may hold several devices, separated by commas.
  std::map<std::string, std::string> flags;
  // Returns an environment variable's value, if it is set. Called only for those in settings.cc.
  std::function<std::optional<std::string>(const std::string& name)> environment;
};

// INVALID_ARGUMENT has one line per problem. Each line begins with the place: "PATH:LINE:COLUMN: ",
// "flag --host-memory: " or "environment GEMINID_SOCKET: ".
absl::StatusOr<Settings> ResolveSettings(const SettingsSources& sources);

}  // namespace geminid::config

#endif  // GEMINID_DAEMON_CONFIG_SETTINGS_H_
