#include "tests/daemon_env/daemon_env.h"

#include <sys/stat.h>

#include "daemon/config/settings.h"
#include "daemon/service/entry/daemon.h"
#include "daemon/service/entry/rpc_server.h"

namespace geminid::testing {

DaemonEnv::DaemonEnv() = default;
DaemonEnv::~DaemonEnv() { Stop(); }

std::string DaemonEnv::address() const { return service::GrpcAddress(socket()); }

std::string DaemonEnv::metrics_address() const { return daemon_->metrics_address(); }

absl::Status DaemonEnv::Start(const DaemonEnvOptions& options) {
  config::SettingsSources sources;
  // The daemon ignores the environment of the test's caller.
  sources.environment = [](const std::string&) { return std::nullopt; };
  sources.flags = {
      {"socket", socket()}, {"host_memory", options.host_memory}, {"log_level", options.log_level}};
  if (options.device.empty()) {
    sources.flags["device_memory"] = options.device_memory;
  } else {
    sources.flags["device"] = options.device;
  }
  sources.flags["metrics_listen"] = options.metrics_listen;
  if (!options.keep_time.empty()) sources.flags["keep_time"] = options.keep_time;
  if (!options.bytes_in_flight.empty()) sources.flags["bytes_in_flight"] = options.bytes_in_flight;
  if (!options.sharing_interval.empty()) {
    sources.flags["sharing_interval"] = options.sharing_interval;
  }
  if (!options.link_bytes_in_flight.empty()) {
    sources.flags["link_bytes_in_flight"] = options.link_bytes_in_flight;
  }
  absl::StatusOr<config::Settings> settings = config::ResolveSettings(sources);
  if (!settings.ok()) return settings.status();
  if (options.tickets_in_flight > 0) settings->tickets_in_flight = options.tickets_in_flight;
  settings->quotas = options.quotas;
  settings->sharing_ranks = options.sharing_ranks;
  settings->tenant_by = options.tenant_by;
  settings->shares = options.shares;
  if (options.sessions > 0) settings->sessions = options.sessions;
  if (options.chunks > 0) settings->chunks = options.chunks;
  if (options.for_everybody) {
    settings->socket_mode = 0666;
    ::chmod(folder_.path().c_str(), 0755);
  }
  os::ConfigureLog(settings->log_level, settings->log_format);
  service::DaemonOptions daemon_options;
  daemon_options.numa = options.numa;
  daemon_options.identify = options.identify;
  daemon_options.agent_program = options.agent_program;
  daemon_options.agent_supervision = options.agent_supervision;
  daemon_options.open_store = options.open_store;
  if (options.sparse_arenas) daemon_options.arena_backing = memory::PageBacking::kSparse;
  absl::StatusOr<std::unique_ptr<service::Daemon>> daemon =
      service::Daemon::Start(*settings, std::move(daemon_options));
  if (!daemon.ok()) return daemon.status();
  daemon_ = *std::move(daemon);
  thread_ = std::thread([raw = daemon_.get()] { raw->Run(); });
  return absl::OkStatus();
}

std::string DaemonEnv::MetricsPage() {
  return service::Monitor(&daemon_->hub(), &daemon_->vitals(), "1").Handle("/metrics").body;
}

void DaemonEnv::Stop() {
  if (daemon_ == nullptr) return;
  daemon_->RequestStop();
  thread_.join();
  daemon_.reset();
}

}  // namespace geminid::testing
