#include "daemon/service/entry/daemon.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/machine_memory.h"
#include "base/status_macros.h"
#include "daemon/config/memory_defaults.h"
#include "daemon/gpus/agent_process.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/service/entry/devices.h"
#include "daemon/service/entry/engine_settings.h"
#include "daemon/service/heritage/shortage.h"

namespace geminid::service {
namespace {

// The machine's memory; none for sparse arenas, which take no memory.
config::MachineMemory MemoryOf(memory::PageBacking backing) {
  if (backing == memory::PageBacking::kSparse) return {};
  return {.total_bytes = base::TotalMemoryBytes(), .available_bytes = base::AvailableMemoryBytes()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const config::Settings& wanted,
                                                      DaemonOptions options) {
  config::Settings settings = wanted;
  GEMINID_RETURN_IF_ERROR(config::FillInMemory(MemoryOf(options.arena_backing), &settings));
  GEMINID_ASSIGN_OR_RETURN(SocketFiles files, SocketFiles::Acquire(settings.socket, options));
  if (options.agent_program.empty()) options.agent_program = gpus::AgentBesideThisProgram();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<gpus::NodeDevice> devices,
                           FindDevices(options.agent_program, &settings));
  std::unique_ptr<Daemon> daemon(new Daemon(settings, std::move(options), std::move(files)));
  GEMINID_RETURN_IF_ERROR(daemon->Open(devices));
  return daemon;
}

Daemon::Daemon(const config::Settings& settings, DaemonOptions options, SocketFiles files)
    : settings_(settings),
      options_(std::move(options)),
      files_(std::move(files)),
      tenancy_(settings, options_.identify),
      reloader_(settings, options_.read_settings, &tenancy_.limits, &vitals_) {}

Daemon::~Daemon() { Close(); }

absl::Status Daemon::Open(const std::vector<gpus::NodeDevice>& devices) {
  GEMINID_ASSIGN_OR_RETURN(loop_, os::EventLoop::Create());
  if (options_.open_store) {
    GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<holder::DescriptorStore> store, options_.open_store());
    store_ = std::make_unique<WatchedStore>(std::move(store), loop_.get(), &vitals_);
  }
  GEMINID_RETURN_IF_ERROR(OpenHub(devices));
  if (store_ != nullptr) store_->Watch([this] { hub_->KeepAll(); });
  loop_->OnAwake([this] { vitals_.turn_since_nanoseconds.store(os::MonotonicNanoseconds()); });
  reloader_.Begin(hub_.get(), gpus_.get());
  GEMINID_RETURN_IF_ERROR(OpenServers());
  stage_ = Stage::kOpen;
  return absl::OkStatus();
}

// The hub, with the sessions that an earlier daemon left, watched.
absl::Status Daemon::OpenHub(const std::vector<gpus::NodeDevice>& devices) {
  GEMINID_ASSIGN_OR_RETURN(SessionHubOptions options,
                           HubOptionsOf(settings_, devices, *options_.numa, files_.epoch()));
  gpus_ =
      std::make_unique<gpus::Gpus>(gpus::Gpus::Options{.program = options_.agent_program,
                                                       .supervision = options_.agent_supervision,
                                                       .had_other_daemons = files_.epoch() > 1},
                                   devices, options.engine.devices, loop_.get());
  Shortage shortage;
  options.gpus = gpus_.get();
  options.arena_backing = options_.arena_backing;
  options.limits = &tenancy_.limits;
  options.store = store_ == nullptr ? nullptr : store_->get();
  GEMINID_ASSIGN_OR_RETURN(hub_, SessionHub::Create(options, &shortage));
  sessions_ = std::make_unique<SessionLoop>(loop_.get(), hub_.get(), &tenancy_.log);
  for (const SessionPtr& session : hub_->AllSessions()) {
    if (session->ended()) continue;
    GEMINID_RETURN_IF_ERROR(shortage.Outlast([&] { return sessions_->Watch(session); }));
  }
  return absl::OkStatus();
}

absl::Status Daemon::OpenServers() {
  servers_ = std::make_unique<Servers>(Servers::Of{.in_force = &reloader_.in_force(),
                                                   .loop = loop_.get(),
                                                   .sessions = sessions_.get(),
                                                   .hub = hub_.get(),
                                                   .tenancy = &tenancy_,
                                                   .vitals = &vitals_});
  GEMINID_RETURN_IF_ERROR(servers_->OpenMetrics(settings_, options_.parent_pid != 0, &files_));
  stop_signs_ = std::make_unique<StopSigns>(&options_, loop_.get(), &vitals_, [this] { Reload(); });
  GEMINID_RETURN_IF_ERROR(stop_signs_->Watch());
  GEMINID_RETURN_IF_ERROR(servers_->OpenEntrance(settings_, files_, &options_));
  const auto or_off = [](const std::string& text) { return text.empty() ? "off" : text; };
  const std::string devices = hub_->Inspect([](const core::Engine& engine, const Sessions&) {
    return absl::StrJoin(engine.devices(), ", ",
                         [](std::string* out, const core::DeviceDescription& device) {
                           absl::StrAppend(out, core::Describe(device));
                         });
  });
  os::Log(os::LogLevel::kInfo, "listening",
          {{"socket", socket()},
           {"epoch", absl::StrCat(hub_->daemon_epoch())},
           {"host_memory", base::FormatBytes(*settings_.host_bytes)},
           {"devices", devices},
           {"metrics", or_off(metrics_address())},
           {"metrics_socket", or_off(metrics_socket())}});
  return absl::OkStatus();
}

void Daemon::Run() {
  Watchdog watchdog(&vitals_);
  vitals_.serving.store(true);
  ::sd_notify(0, absl::StrCat("READY=1\nSTATUS=serving on ", socket()).c_str());
  while (!Finished()) Step(&watchdog);
  ::sd_notify(0, "STOPPING=1\nSTATUS=closing sessions");
  Close();
}

bool Daemon::Finished() const {
  return vitals_.stopping.load() || (stop_signs_->parent_gone() && hub_->AttachedSessions() == 0);
}

void Daemon::Step(Watchdog* watchdog) {
  loop_->RunUntil(NextDeadline(*watchdog));
  sessions_->PumpAll();
  gpus_->Step();
  hub_->Tick();
  if (store_ != nullptr) store_->RenewIfDue();
  // All requests that were in the sessions' rings have been handled, too.
  if (stage_ == Stage::kOpen && !sessions_->busy()) {
    stage_ = Stage::kServed;
    hub_->HasServed();
  }
  watchdog->Feed();
  vitals_.turn_since_nanoseconds.store(0);
}

// When the loop must go on without an event.
std::optional<int64_t> Daemon::NextDeadline(const Watchdog& watchdog) const {
  if (sessions_->busy()) return 0;
  std::optional<int64_t> next = hub_->NextTick();
  for (const std::optional<int64_t> other :
       {gpus_->NextDeadline(), sessions_->NextDeadline(), watchdog.NextDeadline(),
        store_ == nullptr ? std::nullopt : store_->NextDeadline()}) {
    if (other.has_value()) next = std::min(next.value_or(*other), *other);
  }
  return next;
}

// The operator may have mended what kept geminid-holder from starting.
void Daemon::Reload() {
  if (store_ != nullptr) store_->RenewNow();
  reloader_.Reload();
}

void Daemon::RequestStop() {
  loop_->Post([this] { vitals_.stopping.store(true); });
}

// A daemon that could not start does not end the sessions that an earlier daemon left: the next
// daemon takes them over.
bool Daemon::SessionsGoOn() const {
  if (store_ == nullptr) return false;
  if (stage_ != Stage::kStarting) return store_->get()->OutlivesStop();
  return hub_ == nullptr || !hub_->AllSessions().empty();
}

void Daemon::TellAll(shm::Phase phase, SleepingClient::End end) {
  if (hub_ == nullptr) return;
  for (const SessionPtr& session : hub_->AllSessions()) hub_->Tell(session, phase, end);
}

void Daemon::Close() {
  if (!files_.is_locked()) return;
  vitals_.stopping.store(true);
  if (gpus_ != nullptr) gpus_->Close();
  const bool sessions_go_on = SessionsGoOn();
  if (hub_ != nullptr && !sessions_go_on) {
    hub_->CancelPopulating();
    TellAll(shm::Phase::kDraining, SleepingClient::End::kNothing);
  }
  const bool had_control = servers_ != nullptr && servers_->has_control();
  const bool calls_ended = servers_ == nullptr || servers_->Stop();
  sessions_.reset();
  if (!sessions_go_on) TellAll(shm::Phase::kGone, SleepingClient::End::kAll);
  if (store_ != nullptr && !sessions_go_on) store_->get()->Finish();
  files_.Release({.control = had_control,
                  .holder = store_ != nullptr && !sessions_go_on,
                  .sessions = !sessions_go_on});
  if (calls_ended) return;
  os::Log(os::LogLevel::kError, "the daemon exits although some calls have not ended");
  // The memory that these calls use is left to the process's end.
  [[maybe_unused]] const void* const left[] = {servers_.release(), hub_.release()};
}

}  // namespace geminid::service
