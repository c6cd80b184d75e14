#include "daemon/service/entry/daemon.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/machine_memory.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/config/guarantees.h"
#include "daemon/config/memory_defaults.h"
#include "daemon/config/reload.h"
#include "daemon/gpus/agent_process.h"
#include "daemon/gpus/probe.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/os/terminal.h"
#include "daemon/service/entry/daemon_files.h"
#include "daemon/service/entry/devices.h"
#include "daemon/service/entry/version.h"
#include "daemon/service/heritage/shortage.h"
#include "daemon/service/watch/health.h"

namespace geminid::service {
namespace {

constexpr absl::Duration kShutdownPatience = absl::Milliseconds(100);

core::TenantLimits LimitsOf(const config::TenantQuota& quota) {
  core::TenantLimits limits = {.tenant = quota.tenant,
                               .host_bytes = quota.host_bytes.value_or(core::kUnlimited),
                               .device_bytes = quota.device_bytes.value_or(core::kUnlimited)};
  for (const auto& [index, bytes] : quota.bytes_by_device) {
    limits.bytes_by_device[shm::DeviceIndex{index}] = bytes;
  }
  limits.guaranteed_host_bytes = quota.guaranteed_host_bytes;
  limits.guaranteed_device_bytes = quota.guaranteed_device_bytes;
  for (const auto& [index, bytes] : quota.guaranteed_by_device) {
    limits.guaranteed_by_device[shm::DeviceIndex{index}] = bytes;
  }
  limits.weight = quota.weight;
  limits.max_priority = quota.max_priority;
  return limits;
}

std::vector<core::TenantLimits> TenantsOf(const config::Settings& settings) {
  std::vector<core::TenantLimits> tenants;
  for (const config::TenantQuota& quota : settings.quotas) tenants.push_back(LimitsOf(quota));
  return tenants;
}

core::Duration KeepTimeOf(const config::Settings& settings) {
  return core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.keep_time));
}

core::JobQueueOptions JobsOf(const config::Settings& settings) {
  return {
      .gather_time = core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.gather_time)),
      .ageing = core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.queue_ageing)),
      .yield_time = core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.yield_time)),
      .waiting_per_tenant = settings.shares.waiting_jobs};
}

// The machine's, unless what is handed out is memory in name only.
config::MachineMemory MemoryOf(memory::Backing backing) {
  if (backing == memory::Backing::kSparse) return {};
  return {.total_bytes = base::TotalMemoryBytes(), .available_bytes = base::AvailableMemoryBytes()};
}

bool IsFromMachine(const config::Settings& settings, const char* key) {
  return std::ranges::any_of(settings.origins, [key](const config::Origin& origin) {
    return origin.key == key && origin.origin == config::kFromMachine;
  });
}

// Says once what is missing; without a driver that is one line, whatever it was wanted for.
void LogMissing(const absl::Status& found, const std::vector<gpus::NodeDevice>& devices) {
  std::map<std::string, std::vector<size_t>> by_reason;
  if (!found.ok()) by_reason[std::string(found.message())];
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].why_not.empty()) by_reason[devices[i].why_not].push_back(i);
  }
  for (const auto& [why, indices] : by_reason) {
    os::Log(os::LogLevel::kWarning, "no GPU; the other devices are served",
            {{"for_devices", absl::StrJoin(indices, ",")}, {"why", why}});
  }
}

// Puts the GPUs that are there into the settings.
absl::StatusOr<std::vector<gpus::NodeDevice>> FindDevices(const DaemonOptions& options,
                                                          config::Settings* settings) {
  absl::StatusOr<std::vector<agent::GpuFacts>> found = std::vector<agent::GpuFacts>();
  if (gpus::WantsGpus(settings->devices)) {
    found = gpus::FindGpus(options.agent_program, kProbePatience);
  }
  absl::StatusOr<std::vector<gpus::NodeDevice>> devices =
      gpus::AssignGpus(settings->devices, found);
  if (!devices.ok()) return devices;
  LogMissing(found.status(), *devices);
  settings->devices.clear();
  for (const gpus::NodeDevice& device : *devices) settings->devices.push_back(device.setting);
  if (absl::Status status = config::CheckGuarantees(*settings); !status.ok()) return status;
  return devices;
}

absl::StatusOr<HubOptions> HubOptionsOf(const config::Settings& settings,
                                        const std::vector<gpus::NodeDevice>& node_devices,
                                        const os::Numa& numa, uint64_t daemon_epoch) {
  HubOptions options;
  options.machine = os::ReadMachine(numa);
  options.numa = &numa;
  options.huge_pages = settings.huge_pages;
  options.daemon_epoch = daemon_epoch;
  core::EngineOptions& engine = options.engine;
  engine.host_capacity_bytes = *settings.host_bytes;
  options.host_capacity_is_default = IsFromMachine(settings, "host_memory");
  options.device_capacities_are_default = IsFromMachine(settings, "device_memory");
  absl::StatusOr<std::vector<core::DeviceDescription>> devices =
      DescribeDevices(node_devices, settings.socket, options.machine);
  if (!devices.ok()) return devices.status();
  engine.devices = *std::move(devices);
  engine.tenants = TenantsOf(settings);
  engine.transfers.tickets_in_flight = settings.tickets_in_flight;
  engine.transfers.bytes_in_flight = settings.bytes_in_flight;
  engine.max_sessions = settings.sessions;
  options.chunk_records = settings.chunks;
  engine.transfers.link_bytes_in_flight = settings.link_bytes_in_flight;
  options.plan_memory_bytes = settings.plan_memory_bytes;
  engine.keep_time = KeepTimeOf(settings);
  engine.jobs = JobsOf(settings);
  return options;
}

double WallSeconds() { return absl::ToDoubleSeconds(base::WallClockNow() - absl::UnixEpoch()); }

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const config::Settings& wanted,
                                                      DaemonOptions options) {
  config::Settings settings = wanted;
  absl::Status memory = config::FillInMemory(MemoryOf(options.arena_backing), &settings);
  if (!memory.ok()) return memory;
  if (absl::Status status = MakeFolder(settings.socket); !status.ok()) return status;
  WarnOfSharedFolder(settings.socket);
  // Before anything is bound: a second gRPC server would take the socket over without a word.
  absl::StatusOr<os::FileLock> lock =
      os::FileLock::Acquire(absl::StrCat(settings.socket, shm::kLockSuffix));
  if (!lock.ok()) return lock.status();
  if (absl::Status status = FreePaths(settings.socket, options); !status.ok()) return status;
  if (options.agent_program.empty()) options.agent_program = gpus::AgentBesideThisProgram();
  absl::StatusOr<std::vector<gpus::NodeDevice>> devices = FindDevices(options, &settings);
  if (!devices.ok()) return devices.status();
  std::unique_ptr<Daemon> daemon(
      new Daemon(settings, *std::move(devices), std::move(options), *std::move(lock)));
  if (absl::Status status = daemon->Open(); !status.ok()) return status;
  return daemon;
}

Daemon::Daemon(const config::Settings& settings, std::vector<gpus::NodeDevice> devices,
               DaemonOptions options, os::FileLock lock)
    : settings_(settings),
      devices_(std::move(devices)),
      in_force_(settings),
      options_(std::move(options)),
      lock_(std::move(lock)),
      listeners_handed_over_(options_.control_listener.valid()),
      limits_(settings.shares),
      clients_(settings.tenant_by, options_.identify) {}

Daemon::~Daemon() { Close(); }

absl::Status Daemon::Open() {
  absl::StatusOr<std::unique_ptr<os::EventLoop>> loop = os::EventLoop::Create();
  if (!loop.ok()) return loop.status();
  loop_ = *std::move(loop);
  if (absl::Status status = OpenStore(); !status.ok()) return status;
  absl::StatusOr<HubOptions> options =
      HubOptionsOf(settings_, devices_, *options_.numa, lock_->epoch());
  if (!options.ok()) return options.status();
  gpus_ =
      std::make_unique<gpus::Gpus>(gpus::Gpus::Options{.program = options_.agent_program,
                                                       .supervision = options_.agent_supervision,
                                                       .had_other_daemons = lock_->epoch() > 1},
                                   devices_, options->engine.devices, loop_.get());
  options->gpus = gpus_.get();
  options->arena_backing = options_.arena_backing;
  options->limits = &limits_;
  options->store = store_.get();
  absl::StatusOr<std::unique_ptr<Hub>> hub = Hub::Create(*options);
  if (!hub.ok()) return hub.status();
  hub_ = *std::move(hub);
  sessions_ = std::make_unique<SessionLoop>(loop_.get(), hub_.get(), &log_);
  Shortage shortage;
  for (const SessionPtr& session : hub_->AllSessions()) {
    if (session->ended) continue;
    GEMINID_RETURN_IF_ERROR(shortage.Outlast([&] { return sessions_->Watch(session); }));
  }
  WatchStore();
  loop_->OnAwake([this] { vitals_.turn_since_nanoseconds.store(os::MonotonicNanoseconds()); });
  vitals_.last_good_reload_seconds.store(WallSeconds());
  if (absl::Status status = OpenMetrics(); !status.ok()) return status;
  if (absl::Status status = WatchSignals(); !status.ok()) return status;
  if (absl::Status status = WatchTerminal(); !status.ok()) return status;
  if (absl::Status status = WatchParent(); !status.ok()) return status;

  DaemonFacts facts;
  facts.version = kVersion;
  facts.socket = settings_.socket;
  facts.metrics_address = metrics_address();
  facts.metrics_socket = metrics_socket_;
  facts.start_time_seconds = WallSeconds();
  facts.start_nanoseconds = os::MonotonicNanoseconds();
  facts.vitals = &vitals_;
  if (absl::Status status = OpenEntrance(facts); !status.ok()) return status;
  os::Log(os::LogLevel::kInfo, "listening",
          {{"socket", settings_.socket},
           {"epoch", absl::StrCat(hub_->daemon_epoch())},
           {"host_memory", base::FormatBytes(options->engine.host_capacity_bytes)},
           {"devices", absl::StrJoin(options->engine.devices, ", ",
                                     [](std::string* out, const core::DeviceDescription& device) {
                                       absl::StrAppend(out, core::Describe(device));
                                     })},
           {"metrics", metrics_address().empty() ? "off" : metrics_address()},
           {"metrics_socket", metrics_socket_.empty() ? "off" : metrics_socket_}});
  is_open_ = true;
  return absl::OkStatus();
}

absl::Status Daemon::OpenEntrance(const DaemonFacts& facts) {
  GEMINID_ASSIGN_OR_RETURN(entrance_, Entrance::Create(&vitals_));
  const auto on_detached = [this](shm::SessionId id) {
    loop_->Post([this, id] { sessions_->Remove(id); });
  };
  GEMINID_ASSIGN_OR_RETURN(
      rpc_, RpcServer::Start(&in_force_, facts, std::move(options_.control_listener),
                             entrance_->loop(), hub_.get(), &log_, &clients_, on_detached));
  const auto on_attached = [this](const SessionPtr& session) {
    loop_->Post([this, session] { sessions_->Add(session); });
  };
  // Last: who can attach can do everything.
  GEMINID_ASSIGN_OR_RETURN(
      attach_, AttachServer::Create(absl::StrCat(settings_.socket, shm::kAttachSuffix),
                                    settings_.socket_mode, std::move(options_.attach_listener),
                                    entrance_->loop(), hub_.get(), &log_, &clients_, on_attached));
  return entrance_->Start(attach_.get(), rpc_.get());
}

absl::Status Daemon::OpenMetrics() {
  // Who starts a private daemon does not know of it, unless it asks for more.
  if (options_.parent_pid != 0 && settings_.metrics_built_in) return absl::OkStatus();
  metrics_socket_ = absl::StrCat(settings_.socket, config::kHttpSuffix);
  if (absl::Status status = os::RemoveStaleSocket(metrics_socket_); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Observer>> observer =
      Observer::Start({.host = settings_.metrics_host,
                       .port = settings_.metrics_port,
                       .port_required = !settings_.metrics_built_in,
                       .socket = metrics_socket_,
                       .socket_mode = settings_.socket_mode},
                      std::make_unique<Monitor>(hub_.get(), &vitals_, kVersion));
  if (!observer.ok()) return observer.status();
  observer_ = *std::move(observer);
  return absl::OkStatus();
}

absl::Status Daemon::WatchSignals() {
  if (!options_.signal_fd.valid()) return absl::OkStatus();
  return loop_
      ->Watch(options_.signal_fd.get(), EPOLLIN,
              [this](uint32_t) {
                const os::ReceivedSignal signal = os::NextSignal(options_.signal_fd);
                if (signal.number != 0) OnSignal(signal);
              })
      .status();
}

void Daemon::OnSignal(const os::ReceivedSignal& signal) {
  if (options_.parent_pid != 0 && signal.sender != options_.parent_pid) {
    os::Log(os::LogLevel::kInfo, "a signal that is not its parent's changes nothing",
            {{"signal", ::strsignal(signal.number)}, {"sender", absl::StrCat(signal.sender)}});
  } else if (signal.number != SIGHUP) {
    os::Log(os::LogLevel::kInfo, "stopping", {{"signal", ::strsignal(signal.number)}});
    vitals_.stopping.store(true);
  } else if (options_.terminal.valid() && os::HasHungUp(options_.terminal)) {
    StopWithTerminal();
  } else {
    Reload();
  }
}

void Daemon::StopWithTerminal() {
  os::Log(os::LogLevel::kInfo, "stopping: its terminal was closed",
          {{"advice", "--outlive-terminal keeps the daemon"}});
  vitals_.stopping.store(true);
}

// Edges only: a terminal is readable whenever somebody typed.
absl::Status Daemon::WatchTerminal() {
  if (!options_.terminal.valid()) return absl::OkStatus();
  return loop_
      ->Watch(options_.terminal.get(), EPOLLIN | EPOLLET,
              [this](uint32_t) {
                if (!vitals_.stopping.load() && os::HasHungUp(options_.terminal))
                  StopWithTerminal();
              })
      .status();
}

void Daemon::RefuseReload(const absl::Status& why) {
  vitals_.last_reload_good.store(false);
  os::Log(os::LogLevel::kError, "SIGHUP: the configuration is wrong; all stays as it was",
          {{"error", std::string(why.message())}});
}

void Daemon::Reload() {
  if (!options_.read_settings) {
    os::Log(os::LogLevel::kInfo, "SIGHUP: a private daemon has nothing to read again");
    return;
  }
  const absl::StatusOr<config::Settings> read = options_.read_settings();
  if (!read.ok()) {
    return RefuseReload(read.status());
  }
  const config::Settings before = in_force_.Get();
  config::Reload reload = config::MergeReload(before, *read);
  if (const absl::Status status = config::CheckGuarantees(reload.settings); !status.ok()) {
    return RefuseReload(status);
  }
  const os::LogLevel level = reload.settings.log_level;
  const os::LogFormat format = reload.settings.log_format;
  hub_->SetLimits({.tenants = TenantsOf(reload.settings),
                   .keep_time = KeepTimeOf(reload.settings),
                   .jobs = JobsOf(reload.settings),
                   .link_bytes_in_flight = reload.settings.link_bytes_in_flight});
  limits_.Set(reload.settings.shares);
  gpus_->Retry();
  in_force_.Set(std::move(reload.settings));
  vitals_.last_reload_good.store(true);
  vitals_.last_good_reload_seconds.store(WallSeconds());
  const auto listed = [](const std::vector<std::string>& changes) {
    return changes.empty() ? "nothing" : absl::StrJoin(changes, "; ");
  };
  // By the old level or the new one: the one who sent the signal looks for it.
  os::ConfigureLog(std::min(before.log_level, level), format);
  os::Log(reload.needs_restart.empty() ? os::LogLevel::kInfo : os::LogLevel::kWarning,
          "SIGHUP: configuration read again",
          {{"changed", listed(reload.changed)}, {"needs_restart", listed(reload.needs_restart)}});
  os::ConfigureLog(level, format);
}

absl::Status Daemon::WatchParent() {
  if (options_.parent_pid == 0) return absl::OkStatus();
  absl::StatusOr<base::UniqueFd> pidfd = os::OpenPidfd(options_.parent_pid);
  if (absl::IsNotFound(pidfd.status())) {
    parent_gone_ = true;
    return absl::OkStatus();
  }
  if (!pidfd.ok()) return pidfd.status();
  parent_pidfd_ = *std::move(pidfd);
  const auto id = std::make_shared<os::EventLoop::WatchId>(0);
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(parent_pidfd_.get(), EPOLLIN, [this, id](uint32_t) {
        parent_gone_ = true;
        loop_->Unwatch(*id);
      });
  if (watch.ok()) *id = *watch;
  return watch.status();
}

void Daemon::Run() {
  uint64_t watchdog_microseconds = 0;
  if (::sd_watchdog_enabled(0, &watchdog_microseconds) > 0) {
    // Half of what systemd waits, as sd_watchdog_enabled(3) advises.
    watchdog_nanoseconds_ = static_cast<int64_t>(watchdog_microseconds) * 1000 / 2;
  }
  vitals_.serving.store(true);
  ::sd_notify(0, absl::StrCat("READY=1\nSTATUS=serving on ", settings_.socket).c_str());
  while (!Finished()) Step();
  ::sd_notify(0, "STOPPING=1\nSTATUS=closing sessions");
  Close();
}

bool Daemon::Finished() const {
  return vitals_.stopping.load() || (parent_gone_ && hub_->AttachedSessions() == 0);
}

void Daemon::Step() {
  loop_->RunUntil(NextDeadline());
  sessions_->PumpAll();
  gpus_->Step();
  hub_->Tick();
  // What a session had in its ring was looked at, too.
  if (!has_served_ && !sessions_->busy()) {
    has_served_ = true;
    hub_->HasServed();
  }
  const int64_t now = os::MonotonicNanoseconds();
  if (watchdog_nanoseconds_ > 0 && now >= next_watchdog_) {
    if (vitals_.LongestTurn(Now()) < kLongestTurn) ::sd_notify(0, "WATCHDOG=1");
    next_watchdog_ = now + watchdog_nanoseconds_;
  }
  vitals_.turn_since_nanoseconds.store(0);
}

// When there is something to do without an event.
std::optional<int64_t> Daemon::NextDeadline() const {
  if (sessions_->busy()) return 0;
  std::optional<int64_t> next = hub_->NextTick();
  const auto consider = [&next](std::optional<int64_t> other) {
    if (other.has_value()) next = std::min(next.value_or(*other), *other);
  };
  consider(gpus_->NextDeadline());
  consider(sessions_->NextDeadline());
  if (watchdog_nanoseconds_ > 0) consider(next_watchdog_);
  return next;
}

void Daemon::RequestStop() {
  loop_->Post([this] { vitals_.stopping.store(true); });
}

// One that could not start has no say over the sessions that an earlier daemon left: the next one
// has them.
bool Daemon::SessionsGoOn() const {
  if (store_ == nullptr) return false;
  if (is_open_) return store_->OutlivesStop();
  return hub_ == nullptr || !hub_->AllSessions().empty();
}

void Daemon::Close() {
  if (!lock_.has_value()) return;
  vitals_.stopping.store(true);
  if (gpus_ != nullptr) gpus_->Close();
  const bool sessions_go_on = SessionsGoOn();
  if (hub_ != nullptr && !sessions_go_on) {
    hub_->CancelPopulating();
    for (const SessionPtr& session : hub_->AllSessions()) {
      hub_->Tell(session, shm::Phase::kDraining, Sleeper::End::kNothing);
    }
  }
  if (entrance_ != nullptr) entrance_->Stop();
  attach_.reset();
  bool calls_ended = true;
  if (rpc_ != nullptr) {
    rpc_->Drain();
    calls_ended = rpc_->Shutdown(kShutdownPatience);
  }
  observer_.reset();
  sessions_.reset();
  if (hub_ != nullptr && !sessions_go_on) {
    for (const SessionPtr& session : hub_->AllSessions()) {
      hub_->Tell(session, shm::Phase::kGone, Sleeper::End::kAll);
    }
  }
  if (store_ != nullptr && !sessions_go_on) store_->Finish();
  RemoveFiles(sessions_go_on);
  lock_.reset();
  if (calls_ended) return;
  os::Log(os::LogLevel::kError, "some calls do not end; this process ends without them");
  // What these calls use is left to the process's end.
  [[maybe_unused]] const void* const left[] = {rpc_.release(), entrance_.release(), hub_.release()};
}

}  // namespace geminid::service
