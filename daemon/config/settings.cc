#include "daemon/config/settings.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/suggest.h"
#include "daemon/config/config_file.h"
#include "daemon/config/device_settings.h"
#include "daemon/config/guarantees.h"
#include "daemon/config/listen_address.h"
#include "daemon/config/mode.h"
#include "daemon/config/size.h"
#include "daemon/os/unix_socket.h"
#include "proto/shm/attach_messages.h"
#include "proto/shm/daemon_socket.h"
#include "proto/shm/session_layout.h"

namespace geminid::config {
namespace {

using ::google::protobuf::FieldDescriptor;

constexpr uint32_t kConfigVersion = 1;
constexpr size_t kMaxQuotas = 4096;

struct EnvironmentKey {
  const char* variable;
  const char* key;
};
constexpr std::array<EnvironmentKey, 5> kEnvironment = {{
    {shm::kSocketVariable, "socket"},
    {"GEMINID_METRICS_LISTEN", "metrics_listen"},
    {"GEMINID_HOST_MEMORY", "host_memory"},
    {"GEMINID_DEVICES", "device"},
    {"GEMINID_LOG_LEVEL", "log_level"},
}};
constexpr char kBuiltIn[] = "built-in";
constexpr char kConfigVariable[] = "GEMINID_CONFIG";
constexpr uint32_t kMostSessions = 4096;
constexpr uint32_t kMostChunks = uint32_t{1} << 24;  // 2 GiB of records

v1::Config BuiltIn() {
  v1::Config config;
  config.set_config_version(kConfigVersion);
  config.set_socket(shm::kInstalledSocket);
  config.set_socket_mode("0660");
  config.set_metrics_listen("127.0.0.1:9464");
  config.set_keep_time("10m");
  config.set_restart_time("1m");
  config.set_log_level("info");
  config.set_log_format("text");
  config.set_tickets_in_flight(2);
  config.set_bytes_in_flight("64MiB");
  config.set_huge_pages(true);
  config.set_sessions(512);
  config.set_chunks(4 * shm::kMaxChunks);
  config.set_plan_memory("1GiB");
  config.set_tenant_by("container");
  config.set_link_bytes_in_flight("64MiB");
  config.set_gather_time("60s");
  config.set_queue_ageing("30m");
  config.set_yield_time("60s");
  config.set_sharing_interval("60s");
  config.set_sharing_ranks(0);
  SetShares(TenantShares{}, &config);
  return config;
}

struct Place {
  std::string origin;  // becomes Origin::origin
  std::string where;   // for messages; built-in values have no problems
};

std::string DeviceKey(int position) { return absl::StrCat("device[", position, "]"); }

// Merges all sources key by key, and remembers the place of each value.
class Merger {
 public:
  Merger() : config_(BuiltIn()) {}

  void AddFile(const ConfigFile& file) {
    const auto* descriptor = v1::Config::descriptor();
    const auto* reflection = config_.GetReflection();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      const auto at = file.positions.find(std::string(field->name()));
      if (field->is_repeated() || at == file.positions.end()) continue;
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
          reflection->SetString(&config_, field, reflection->GetString(file.config, field));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          reflection->SetBool(&config_, field, reflection->GetBool(file.config, field));
          break;
        default:
          reflection->SetUInt32(&config_, field, reflection->GetUInt32(file.config, field));
      }
    }
    *config_.mutable_quotas() = file.config.quotas();
    *config_.mutable_device() = file.config.device();
    for (const auto& [key, position] : file.positions) {
      places_[key] = {absl::StrCat("file ", file.path, ":", position.line),
                      absl::StrCat(file.path, ":", position.line, ":", position.column)};
    }
    if (file.config.device_size() > 0 && file.positions.contains("device_memory")) {
      GivenTwice(PlaceOf("device[0]").where);
    }
  }

  // A text from a source other than a file, and its origin. AddTexts takes them by key.
  struct Text {
    std::string value;
    std::string origin;
  };
  void AddTexts(const std::map<std::string, Text>& texts) {
    const auto devices = texts.find("device");
    const auto memory = texts.find("device_memory");
    if (devices != texts.end() && memory != texts.end()) GivenTwice(devices->second.origin);
    // A source that gives `device` or `device_memory` overrides both keys of lower sources.
    if (devices != texts.end() || memory != texts.end()) ForgetDevices();
    for (const auto& [key, text] : texts) {
      if (key == "device") {
        AddDevices(text);
      } else {
        AddText(key, text.value, text.origin);
      }
    }
  }

  void AddText(const std::string& key, const std::string& value, const std::string& origin) {
    const FieldDescriptor* field = v1::Config::descriptor()->FindFieldByName(key);
    config_.GetReflection()->SetString(&config_, field, value);
    places_[key] = {origin, origin};
  }

  const v1::Config& config() const { return config_; }
  const std::vector<std::string>& problems() const { return problems_; }

  Place PlaceOf(const std::string& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? Place{kBuiltIn, kBuiltIn} : found->second;
  }

  std::vector<Origin> Origins() const {
    std::vector<Origin> origins;
    const auto* descriptor = v1::Config::descriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      if (field->is_repeated()) continue;
      const std::string name(field->name());
      // Not listed: here it is only a short form of the devices listed below.
      if (name == "device_memory" && config_.device_size() > 0) continue;
      origins.push_back({name, ValueText(field), PlaceOf(name).origin});
    }
    for (int i = 0; i < config_.quotas_size(); ++i) {
      const std::string key = absl::StrCat("quotas[", i, "]");
      origins.push_back({key, config_.quotas(i).ShortDebugString(), PlaceOf(key).origin});
    }
    for (int i = 0; i < config_.device_size(); ++i) {
      const std::string key = DeviceKey(i);
      origins.push_back({key, ToText(config_.device(i)), PlaceOf(key).origin});
    }
    return origins;
  }

 private:
  void GivenTwice(const std::string& where) {
    problems_.push_back(absl::StrCat(
        where,
        ": device and device_memory are both given; device_memory is short for one host "
        "device: leave one of the two out"));
  }

  void ForgetDevices() {
    for (int i = 0; i < config_.device_size(); ++i) places_.erase(DeviceKey(i));
    config_.clear_device();
    config_.clear_device_memory();
    places_.erase("device_memory");
  }

  void AddDevices(const Text& text) {
    const absl::StatusOr<std::vector<v1::Device>> devices = ParseDeviceList(text.value);
    if (!devices.ok()) {
      problems_.push_back(absl::StrCat(text.origin, ": ", devices.status().message()));
      return;
    }
    for (const v1::Device& device : *devices) {
      places_[DeviceKey(config_.device_size())] = {text.origin, text.origin};
      *config_.add_device() = device;
    }
  }

  std::string ValueText(const FieldDescriptor* field) const {
    const auto* reflection = config_.GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->GetString(config_, field);
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->GetBool(config_, field) ? "true" : "false";
      default:
        return absl::StrCat(reflection->GetUInt32(config_, field));
    }
  }

  v1::Config config_;
  std::map<std::string, Place> places_;
  std::vector<std::string> problems_;
};

// Turns the texts into numbers, and collects all problems.
class Checker {
 public:
  explicit Checker(const Merger& merger)
      : merger_(merger), config_(merger.config()), problems_(merger.problems()) {}

  Settings Check() {
    Settings settings;
    if (config_.config_version() != kConfigVersion) {
      Problem("config_version",
              absl::StrCat(config_.config_version(), " is not known; this program reads version ",
                           kConfigVersion));
    }
    CheckSocket(&settings);
    CheckMetricsListen(&settings);
    settings.host_bytes = Size("host_memory", config_.host_memory());
    CheckDevices(&settings);
    settings.keep_time = Time("keep_time", config_.keep_time());
    settings.restart_time = Time("restart_time", config_.restart_time());
    CheckLog(&settings);
    CheckTransfers(&settings);
    CheckLimits(&settings);
    CheckQuotas(&settings);
    settings.huge_pages = config_.huge_pages();
    settings.effective = config_;
    settings.origins = merger_.Origins();
    return settings;
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  // Reports at the place of `key`; if its source gave only `whole`, at the place of `whole`.
  void ProblemWithin(const std::string& whole, const std::string& key, const std::string& problem) {
    Problem(merger_.PlaceOf(key).origin == kBuiltIn ? whole : key, problem);
  }

  void Problem(const std::string& key, const std::string& problem) {
    const Place place = merger_.PlaceOf(key);
    // For flags and variables the place already names the key.
    const bool in_file = absl::StartsWith(place.origin, "file ");
    problems_.push_back(absl::StrCat(place.where, ": ", in_file ? key + ": " : "", problem));
  }

  std::optional<uint64_t> Size(const std::string& key, const std::string& text) {
    if (text.empty()) return std::nullopt;
    const absl::StatusOr<uint64_t> bytes = ParseSize(text);
    if (bytes.ok()) return *bytes;
    Problem(key, std::string(bytes.status().message()));
    return std::nullopt;
  }

  absl::Duration Time(const std::string& key, const std::string& text) {
    absl::Duration duration;
    if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
        duration == absl::InfiniteDuration()) {
      Problem(key, absl::StrCat("'", text, "' is not a time; write one such as 30s, 10m or 1h30m"));
    }
    return duration;
  }

  void CheckSocket(Settings* settings) {
    settings->socket = config_.socket();
    const size_t longest = os::kMaxSocketPath - std::string(shm::kAttachSuffix).size();
    if (settings->socket.empty()) {
      Problem("socket", "it is empty; give a path");
    } else if (std::ranges::any_of(settings->socket,
                                   [](unsigned char c) { return absl::ascii_iscntrl(c); })) {
      Problem("socket", "the path has a control character; give one without");
    } else if (settings->socket.back() == '/') {
      Problem("socket", absl::StrCat("'", settings->socket,
                                     "' names a folder; give the path of the socket in it"));
    } else if (settings->socket.size() > longest) {
      Problem("socket",
              absl::StrCat("the path has ", settings->socket.size(), " characters; at most ",
                           longest, " leave room for '.attach' in a socket address"));
    }
    const absl::StatusOr<mode_t> mode = ParseMode(config_.socket_mode());
    if (!mode.ok()) Problem("socket_mode", std::string(mode.status().message()));
    settings->socket_mode = mode.value_or(0);
  }

  void CheckMetricsListen(Settings* settings) {
    settings->metrics_built_in = merger_.PlaceOf("metrics_listen").origin == kBuiltIn;
    const absl::StatusOr<ListenAddress> address = ParseListenAddress(config_.metrics_listen());
    if (!address.ok()) return Problem("metrics_listen", std::string(address.status().message()));
    settings->metrics_host = address->host;
    settings->metrics_port = address->port;
  }

  void CheckLog(Settings* settings) {
    if (!os::ParseLogLevel(config_.log_level(), &settings->log_level)) {
      Problem("log_level",
              absl::StrCat(
                  "'", config_.log_level(), "' is not debug, info, warning or error",
                  base::DidYouMean(config_.log_level(), {"debug", "info", "warning", "error"})));
    }
    if (!os::ParseLogFormat(config_.log_format(), &settings->log_format)) {
      Problem("log_format", absl::StrCat("'", config_.log_format(), "' is not text or json",
                                         base::DidYouMean(config_.log_format(), {"text", "json"})));
    }
  }

  void CheckLimits(Settings* settings) {
    const auto check = [this](const char* key, uint32_t value, uint32_t least, uint32_t most) {
      if (value >= least && value <= most) return value;
      Problem(key, absl::StrCat(value, " is not from ", least, " to ", most));
      return least;
    };
    // A tenant gets at most half of the sessions, so two is the least that allows one session.
    settings->sessions = check("sessions", config_.sessions(), 2, kMostSessions);
    settings->chunks = check("chunks", config_.chunks(), 2, kMostChunks);
    settings->plan_memory_bytes = Size("plan_memory", config_.plan_memory()).value_or(0);
    const absl::StatusOr<TenantBy> by = ParseTenantBy(config_.tenant_by());
    if (!by.ok()) Problem("tenant_by", std::string(by.status().message()));
    settings->tenant_by = by.value_or(TenantBy::kContainer);
    settings->shares = SharesOf(config_);
    for (const ShareKey& key : kShareKeys) {
      check(key.key, settings->shares.*key.value, key.least, key.most);
    }
  }

  void CheckTransfers(Settings* settings) {
    settings->tickets_in_flight = config_.tickets_in_flight();
    const uint32_t most = shm::kMaxTicketsInFlight / 2;  // both directions share completion words
    if (settings->tickets_in_flight < 1 || settings->tickets_in_flight > most) {
      Problem("tickets_in_flight",
              absl::StrCat(settings->tickets_in_flight, " is not from 1 to ", most));
    }
    const size_t problems_before = problems_.size();
    settings->bytes_in_flight = Size("bytes_in_flight", config_.bytes_in_flight()).value_or(0);
    if (problems_.size() == problems_before && settings->bytes_in_flight == 0) {
      Problem("bytes_in_flight", "it must be more than 0, or no copy could start");
    }
    settings->link_bytes_in_flight =
        Size("link_bytes_in_flight", config_.link_bytes_in_flight()).value_or(0);
    settings->gather_time = Time("gather_time", config_.gather_time());
    settings->queue_ageing = Time("queue_ageing", config_.queue_ageing());
    settings->yield_time = Time("yield_time", config_.yield_time());
    settings->sharing_interval = Time("sharing_interval", config_.sharing_interval());
    settings->sharing_ranks = config_.sharing_ranks();
    if (settings->queue_ageing == absl::ZeroDuration()) {
      Problem("queue_ageing", "it must be more than 0, or priorities would have no effect");
    }
  }

  void CheckDevices(Settings* settings) {
    if (const std::optional<uint64_t> bytes = Size("device_memory", config_.device_memory())) {
      settings->devices = {{.bytes = *bytes}};
      if (*bytes == 0)
        Problem("device_memory", "a device of 0 bytes serves no rank; give it memory");
      if (const absl::Status fits = CheckArenaSize(*bytes); !fits.ok()) {
        Problem("device_memory", std::string(fits.message()));
      }
    }
    const int count = config_.device_size();
    if (count > static_cast<int>(shm::kMaxDevices)) {
      return Problem("device[0]", absl::StrCat("there are ", count, "; at most ", shm::kMaxDevices,
                                               " are allowed"));
    }
    if (count == 0) return;
    for (const DeviceProblem& problem : ReadDevices(config_, &settings->devices)) {
      const std::string key = DeviceKey(problem.position);
      ProblemWithin(key, key + "." + problem.within, problem.text);
    }
  }

  void CheckDeviceQuotas(const std::string& key, const v1::TenantQuota& line,
                         const Settings& settings, TenantQuota* quota) {
    const bool unknown = std::any_of(settings.devices.begin(), settings.devices.end(),
                                     [](const DeviceSetting& device) { return device.all_gpus; });
    const size_t devices =
        unknown ? shm::kMaxDevices : std::max<size_t>(settings.devices.size(), 1);
    for (int i = 0; i < line.device_size(); ++i) {
      const v1::DeviceQuota& of_device = line.device(i);
      const std::string device_key = absl::StrCat(key, "device[", i, "]");
      if (of_device.index() >= devices) {
        ProblemWithin(
            device_key, device_key + ".index",
            absl::StrCat("there is no device ", of_device.index(), "; the last is ", devices - 1));
      } else if (quota->bytes_by_device.contains(of_device.index())) {
        ProblemWithin(device_key, device_key + ".index",
                      absl::StrCat("device ", of_device.index(), " is given twice"));
      }
      if (of_device.memory().empty() && !of_device.guaranteed().empty()) continue;
      const absl::StatusOr<uint64_t> bytes = ParseSize(of_device.memory());
      if (!bytes.ok()) {
        ProblemWithin(device_key, device_key + ".memory", std::string(bytes.status().message()));
      }
      quota->bytes_by_device[of_device.index()] = bytes.value_or(0);
    }
  }

  void CheckQuotas(Settings* settings) {
    if (config_.quotas_size() > static_cast<int>(kMaxQuotas)) {
      Problem("quotas[0]", absl::StrCat("there are ", config_.quotas_size(), "; at most ",
                                        kMaxQuotas, " are allowed"));
      return;
    }
    for (int i = 0; i < config_.quotas_size(); ++i) {
      const v1::TenantQuota& line = config_.quotas(i);
      const std::string key = absl::StrCat("quotas[", i, "].");
      TenantQuota quota;
      quota.tenant = line.tenant();
      if (absl::Status status = CheckTenant(quota.tenant); !status.ok()) {
        ProblemWithin(absl::StrCat("quotas[", i, "]"), key + "tenant",
                      std::string(status.message()));
      }
      const bool twice =
          std::any_of(settings->quotas.begin(), settings->quotas.end(),
                      [&](const TenantQuota& other) { return other.tenant == quota.tenant; });
      if (twice) Problem(key + "tenant", absl::StrCat("'", quota.tenant, "' is given twice"));
      quota.host_bytes = Size(key + "host_memory", line.host_memory());
      quota.device_bytes = Size(key + "device_memory", line.device_memory());
      quota.disk_bytes = Size(key + "disk", line.disk());
      CheckDeviceQuotas(key, line, *settings, &quota);
      for (const auto& [within, problem] : ReadGuarantees(line, &quota)) {
        ProblemWithin(absl::StrCat("quotas[", i, "]"), key + within, problem);
      }
      settings->quotas.push_back(quota);
    }
  }

  const Merger& merger_;
  const v1::Config& config_;
  std::vector<std::string> problems_;
};

std::string FlagOf(const std::string& key) {
  return absl::StrCat("flag --", absl::StrReplaceAll(key, {{"_", "-"}}));
}

}  // namespace

absl::StatusOr<Settings> ResolveSettings(const SettingsSources& sources) {
  Merger merger;
  std::string path = sources.config_path;
  if (path.empty()) path = sources.environment(kConfigVariable).value_or("");
  if (!path.empty()) {
    absl::StatusOr<ConfigFile> file = ReadConfigFile(path);
    if (!file.ok()) return file.status();
    merger.AddFile(*file);
  }
  std::map<std::string, Merger::Text> variables;
  for (const EnvironmentKey& entry : kEnvironment) {
    const std::optional<std::string> value = sources.environment(entry.variable);
    if (!value.has_value()) continue;
    variables[entry.key] = {*value, absl::StrCat("environment ", entry.variable)};
  }
  merger.AddTexts(variables);
  std::map<std::string, Merger::Text> flags;
  for (const auto& [key, value] : sources.flags) flags[key] = {value, FlagOf(key)};
  merger.AddTexts(flags);
  Checker checker(merger);
  Settings settings = checker.Check();
  if (!checker.problems().empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(checker.problems(), "\n"));
  }
  return settings;
}

}  // namespace geminid::config
