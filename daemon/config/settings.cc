#include "daemon/config/settings.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/suggest.h"
#include "daemon/config/config_file.h"
#include "daemon/os/unix_socket.h"
#include "proto/shm/attach_messages.h"
#include "proto/shm/session_layout.h"

namespace geminid::config {
namespace {

using ::google::protobuf::FieldDescriptor;

constexpr uint32_t kConfigVersion = 1;
constexpr uint32_t kMaxSocketMode = 0777;
constexpr size_t kMaxQuotas = 4096;

struct EnvironmentKey {
  const char* variable;
  const char* key;
};
constexpr std::array<EnvironmentKey, 4> kEnvironment = {{
    {"GEMINID_SOCKET", "socket"},
    {"GEMINID_METRICS_LISTEN", "metrics_listen"},
    {"GEMINID_HOST_MEMORY", "host_memory"},
    {"GEMINID_LOG_LEVEL", "log_level"},
}};
constexpr char kConfigVariable[] = "GEMINID_CONFIG";

v1::Config BuiltIn() {
  v1::Config config;
  config.set_config_version(kConfigVersion);
  config.set_socket("/run/geminid/geminid.sock");
  config.set_socket_mode(0660);
  config.set_keep_time("10m");
  config.set_log_level("info");
  config.set_log_format("text");
  config.set_tickets_in_flight(2);
  config.set_bytes_in_flight("64MiB");
  config.set_huge_pages(true);
  return config;
}

struct Place {
  std::string origin;  // for `Origin`
  std::string where;   // for messages; a built-in value has nothing wrong
};

// Merges the sources key by key and remembers the places.
class Merger {
 public:
  Merger() : config_(BuiltIn()) {}

  void AddFile(const ConfigFile& file) {
    const auto* descriptor = v1::Config::descriptor();
    const auto* reflection = config_.GetReflection();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      const auto at = file.positions.find(field->name());
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
    for (const auto& [key, position] : file.positions) {
      places_[key] = {absl::StrCat("file ", file.path, ":", position.line),
                      absl::StrCat(file.path, ":", position.line, ":", position.column)};
    }
  }

  // Flags and variables exist for texts only.
  void AddText(const std::string& key, const std::string& value, const std::string& origin) {
    const FieldDescriptor* field = v1::Config::descriptor()->FindFieldByName(key);
    config_.GetReflection()->SetString(&config_, field, value);
    places_[key] = {origin, origin};
  }

  const v1::Config& config() const { return config_; }

  Place PlaceOf(const std::string& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? Place{"built-in", "built-in"} : found->second;
  }

  std::vector<Origin> Origins() const {
    std::vector<Origin> origins;
    const auto* descriptor = v1::Config::descriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      if (field->is_repeated()) continue;
      origins.push_back({field->name(), ValueText(field), PlaceOf(field->name()).origin});
    }
    for (int i = 0; i < config_.quotas_size(); ++i) {
      const std::string key = absl::StrCat("quotas[", i, "]");
      origins.push_back({key, config_.quotas(i).ShortDebugString(), PlaceOf(key).origin});
    }
    return origins;
  }

 private:
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
};

// Turns texts into numbers and collects what is wrong with them.
class Checker {
 public:
  explicit Checker(const Merger& merger) : merger_(merger), config_(merger.config()) {}

  Settings Check() {
    Settings settings;
    if (config_.config_version() != kConfigVersion) {
      Problem("config_version", absl::StrCat(config_.config_version(),
                                             " is not known; this "
                                             "program reads version ",
                                             kConfigVersion));
    }
    CheckSocket(&settings);
    CheckMetricsListen(&settings);
    settings.host_bytes = Size("host_memory", config_.host_memory());
    settings.device_bytes = Size("device_memory", config_.device_memory());
    settings.keep_time = Time("keep_time", config_.keep_time());
    CheckLog(&settings);
    CheckTransfers(&settings);
    CheckQuotas(&settings);
    settings.huge_pages = config_.huge_pages();
    settings.effective = config_;
    settings.origins = merger_.Origins();
    return settings;
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void Problem(const std::string& key, const std::string& problem) {
    const Place place = merger_.PlaceOf(key);
    // A flag and a variable name their key themselves.
    const bool in_file = absl::StartsWith(place.origin, "file ");
    problems_.push_back(absl::StrCat(place.where, ": ", in_file ? key + ": " : "", problem));
  }

  std::optional<uint64_t> Size(const std::string& key, const std::string& text) {
    if (text.empty()) return std::nullopt;
    absl::StatusOr<uint64_t> bytes = base::ParseBytes(text);
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
    } else if (settings->socket.size() > longest) {
      Problem("socket",
              absl::StrCat("the path has ", settings->socket.size(), " characters; at most ",
                           longest, " leave room for '.attach' in a socket address"));
    }
    settings->socket_mode = static_cast<mode_t>(config_.socket_mode());
    if (config_.socket_mode() > kMaxSocketMode) {
      Problem("socket_mode", absl::StrCat(config_.socket_mode(),
                                          " is not a permission; write the "
                                          "octal mode as a decimal number: 432 is 0660"));
    }
  }

  void CheckMetricsListen(Settings* settings) {
    const std::string& text = config_.metrics_listen();
    if (text.empty()) return;
    const size_t colon = text.rfind(':');
    uint32_t port = 0;
    if (colon == std::string::npos || colon == 0 ||
        !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
        port > std::numeric_limits<uint16_t>::max()) {
      Problem("metrics_listen", absl::StrCat("'", text,
                                             "' is not ADDRESS:PORT, as in "
                                             "127.0.0.1:9464; port 0 takes any free one"));
      return;
    }
    settings->metrics_host = text.substr(0, colon);
    if (settings->metrics_host.front() == '[' && settings->metrics_host.back() == ']') {
      settings->metrics_host = settings->metrics_host.substr(1, settings->metrics_host.size() - 2);
    }
    settings->metrics_port = static_cast<uint16_t>(port);
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

  void CheckTransfers(Settings* settings) {
    settings->tickets_in_flight = config_.tickets_in_flight();
    // Both directions share the completion words.
    const uint32_t most = shm::kMaxTicketsInFlight / 2;
    if (settings->tickets_in_flight < 1 || settings->tickets_in_flight > most) {
      Problem("tickets_in_flight",
              absl::StrCat(settings->tickets_in_flight, " is not from 1 to ", most));
    }
    const size_t problems_before = problems_.size();
    settings->bytes_in_flight = Size("bytes_in_flight", config_.bytes_in_flight()).value_or(0);
    if (problems_.size() == problems_before && settings->bytes_in_flight == 0) {
      Problem("bytes_in_flight", "it must be more than 0, or nothing could move");
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
      uint32_t uid;
      absl::string_view number = line.tenant();
      if (quota.tenant != "*" &&
          (!absl::ConsumePrefix(&number, "uid:") || !absl::SimpleAtoi(number, &uid))) {
        const bool given = merger_.PlaceOf(key + "tenant").origin != "built-in";
        Problem(given ? key + "tenant" : absl::StrCat("quotas[", i, "]"),
                absl::StrCat("tenant '", quota.tenant, "' is not uid:NUMBER or *"));
      }
      const bool twice =
          std::any_of(settings->quotas.begin(), settings->quotas.end(),
                      [&](const TenantQuota& other) { return other.tenant == quota.tenant; });
      if (twice) Problem(key + "tenant", absl::StrCat("'", quota.tenant, "' is given twice"));
      quota.host_bytes = Size(key + "host_memory", line.host_memory());
      quota.device_bytes = Size(key + "device_memory", line.device_memory());
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
  for (const EnvironmentKey& entry : kEnvironment) {
    const std::optional<std::string> value = sources.environment(entry.variable);
    if (!value.has_value()) continue;
    merger.AddText(entry.key, *value, absl::StrCat("environment ", entry.variable));
  }
  for (const auto& [key, value] : sources.flags) merger.AddText(key, value, FlagOf(key));
  Checker checker(merger);
  Settings settings = checker.Check();
  if (!checker.problems().empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(checker.problems(), "\n"));
  }
  return settings;
}

}  // namespace geminid::config
