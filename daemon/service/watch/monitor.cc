#include "daemon/service/watch/monitor.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "daemon/metrics/families.h"
#include "daemon/metrics/live/live.h"
#include "daemon/metrics/process.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/service/sessions/registrations.h"
#include "daemon/service/watch/plan_page.h"

namespace geminid::service {
namespace {

constexpr char kHtml[] = "text/html; charset=utf-8";

void AddFaults(const agent::Faults& faults, metrics::GpuReading* gpu) {
  const auto known = [&](uint32_t bit) { return (faults.known & bit) != 0; };
  if (known(agent::kVolatileErrors)) gpu->uncorrected_errors = faults.volatile_errors;
  if (known(agent::kAggregateErrors)) gpu->uncorrected_errors_ever = faults.aggregate_errors;
  if (known(agent::kRetiredPages)) gpu->retired_pages_pending = faults.retired_pages_pending != 0;
  if (known(agent::kRowRemaps)) {
    gpu->row_remap_pending = faults.row_remap_pending != 0;
    gpu->row_remap_failed = faults.row_remap_failed != 0;
  }
}

void AddGpus(const gpus::Gpus& gpus, metrics::Reading* reading) {
  for (const auto& [device, of_agent] : gpus.Read()) {
    const agent::Health health = of_agent.health.value_or(agent::Health{});
    metrics::GpuReading gpu = {.device = shm::Value(device),
                               .serving = of_agent.state == agent::AgentState::kServing,
                               .restarts = of_agent.restarts,
                               .total_bytes = health.total_bytes,
                               .free_bytes = health.free_bytes,
                               .slab_bytes = health.slab_bytes,
                               .health = Name(of_agent.verdict().condition),
                               .xids = of_agent.xids.counts()};
    AddFaults(health.faults, &gpu);
    reading->gpus.push_back(std::move(gpu));
  }
}

void AddGpus(const gpus::Gpus& gpus, HealthReading* reading) {
  bool some_agent_serves = false;
  for (const auto& [device, of_agent] : gpus.Read()) {
    if (absl::Status fit = gpus.CheckFit(device); !fit.ok()) {
      reading->gpus_without_memory.emplace_back(fit.message());
      continue;
    }
    if (of_agent.state == agent::AgentState::kServing) {
      some_agent_serves = true;
      continue;
    }
    reading->gpus_without_memory.push_back(
        absl::StrCat("device ", shm::Value(device), ": its agent is ", agent::Name(of_agent.state),
                     of_agent.why.empty() ? "" : absl::StrCat(" (", of_agent.why, ")"),
                     "; geminictl status shows the GPUs, and a reload (SIGHUP) has one that has "
                     "given up try again"));
  }
  for (const auto& [device, why] : gpus.missing()) reading->gpus_without_memory.push_back(why);
  reading->some_device_serves = some_agent_serves || gpus.has_other_devices();
}

void ReadMemory(const core::Engine& engine, metrics::Reading* reading) {
  for (const core::Account& account : engine.ledger().Accounts()) {
    reading->accounts.emplace_back(account, engine.ledger().Totals(account));
  }
  reading->lines = engine.ledger().Lines();
  std::set<std::string> tenants = engine.quota().ChargedTenants();
  tenants.insert(engine.quota().GuaranteedTenants().begin(),
                 engine.quota().GuaranteedTenants().end());
  for (const std::string& tenant : tenants) {
    for (const auto& [account, totals] : reading->accounts) {
      if (totals.capacity_bytes == 0) continue;
      reading->tenants.push_back(
          {.tenant = tenant,
           .account = account,
           .charged_bytes = engine.quota().ChargedBytes(tenant, account),
           .limit_bytes = engine.quota().LimitBytes(tenant, account),
           .guaranteed_bytes = engine.quota().GuaranteedBytes(tenant, account)});
    }
  }
}

void ReadSessions(const core::Engine& engine, const Sessions& sessions, metrics::Reading* reading) {
  for (const core::SessionSnapshot& snapshot : engine.Sessions()) {
    metrics::SessionReading session = {.id = snapshot.id,
                                       .tenant = snapshot.spec.tenant,
                                       .state = snapshot.state,
                                       .device = snapshot.device,
                                       .host_bytes = snapshot.host_bytes,
                                       .device_bytes = snapshot.arena_bytes};
    const auto found = sessions.find(snapshot.id);
    if (found != sessions.end()) session.registration = RegistrationOf(*found->second);
    if (found != sessions.end() && !found->second->ended()) {
      const ClientNumbers numbers = found->second->ReadNumbers();
      session.disk_file_bytes = numbers.disk.file_bytes;
      session.batch = numbers.batch;
    }
    if (snapshot.has_plan && found != sessions.end()) {
      const PlanNumbers& plan = found->second->plan;
      session.plan = metrics::PlanReading{plan.transfer_bytes, plan.transfer_bytes_lower_bound};
    }
    reading->sessions.push_back(std::move(session));
  }
}

void ReadLinks(const core::Engine& engine, core::Time now, metrics::Reading* reading) {
  for (const core::DeviceDescription& device : engine.devices()) {
    metrics::DeviceReading& of_device = reading->devices.emplace_back();
    of_device.transfers = engine.transfers().TotalsOf(device.index);
    of_device.overdue_tickets = engine.transfers().OverdueTickets(device.index);
    for (const shm::Direction direction :
         {shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost}) {
      of_device.links[static_cast<size_t>(core::Index(direction))] =
          engine.transfers().ReadLink(device.index, direction, now);
    }
  }
}

metrics::JobsReading ReadJobs(const core::JobQueue& queue, core::Time now) {
  metrics::JobsReading jobs;
  jobs.counters = queue.counters();
  const double wall = absl::ToDoubleSeconds(base::WallClockNow() - absl::UnixEpoch());
  for (const core::JobSnapshot& job : queue.Jobs()) {
    ++jobs.by_state[job.standing.state];
    if (job.standing.position == 0) continue;
    const double since = wall - (now - job.since).seconds();
    jobs.oldest_wait_timestamp_seconds =
        std::min(since, jobs.oldest_wait_timestamp_seconds.value_or(since));
  }
  return jobs;
}

metrics::RequestsReading ReadRequests(const RequestCounts& counts) {
  return {counts.done.load(), counts.refused.load(), counts.gone_back.load()};
}

void AddJobCounts(const JobCounts& counts, metrics::JobsReading* jobs) {
  jobs->ranks_changed = counts.sharing.done.load();
  jobs->ranks_not_changed = counts.sharing.refused.load();
  jobs->scales = ReadRequests(counts.scales);
  jobs->moves = ReadRequests(counts.moves);
  jobs->shrunk = counts.shrunk.load();
}

}  // namespace

metrics::Reading Monitor::Read() const {
  metrics::Reading reading;
  reading.version = version_;
  reading.epoch = hub_->daemon_epoch();
  reading.last_reload_good = vitals_->last_reload_good.load();
  reading.last_good_reload_timestamp_seconds = vitals_->last_good_reload_seconds.load();
  reading.process = metrics::ReadProcess();
  reading.calls = vitals_->calls.Read();
  hub_->Observe([&](const core::Engine& engine, const Sessions& sessions,
                    SessionHubCounters numbers) {
    const core::Time now = Now();
    ReadMemory(engine, &reading);
    ReadSessions(engine, sessions, &reading);
    ReadLinks(engine, now, &reading);
    reading.jobs = ReadJobs(engine.jobs(), now);
    AddJobCounts(vitals_->jobs, &reading.jobs);
    if (engine.jobs().drained()) reading.phase = metrics::DaemonPhase::kDrained;
    reading.session_limit = {engine.session_limit().used(), engine.session_limit().total()};
    reading.chunk_limit = {engine.chunk_limit().used(), engine.chunk_limit().total()};
    reading.refusals = engine.refusals().Read();
    reading.counters = engine.counters();
    reading.overhead_bytes =
        sessions.size() * (memory::SessionSegments::Bytes() + core::SessionBooks::Bytes()) +
        engine.manifest().bytes_in_use();
    reading.plan_memory_bytes = numbers.plan_memory_bytes;
    reading.take_over = numbers.take_over;
    reading.allocations = std::move(numbers.allocations);
    reading.counted = std::move(numbers.counted);
  });
  if (vitals_->survival.load() != SessionSurvival::kNotWanted) {
    reading.sessions_survive = vitals_->survival.load() == SessionSurvival::kAssured;
  }
  reading.lost_sockets = lost_sockets_.size();
  if (vitals_->stopping.load()) reading.phase = metrics::DaemonPhase::kStopping;
  if (hub_->gpus() != nullptr) AddGpus(*hub_->gpus(), &reading);
  const std::vector<core::Refusals::Row> refused = hub_->limits().Refused();
  reading.refusals.insert(reading.refusals.end(), refused.begin(), refused.end());
  reading.invariant_checks = checks_;
  reading.invariant_violations = contradictions_.size();
  return reading;
}

void Monitor::CheckIfDue(int64_t now_nanoseconds) {
  if (now_nanoseconds < next_check_) return;
  next_check_ = now_nanoseconds + kCheckEveryNanoseconds;
  CheckAccounts();
  CheckSockets();
}

void Monitor::CheckSockets() {
  if (vitals_->stopping.load()) return;  // the daemon itself removes them
  std::vector<std::string> lost = vitals_->sockets.Lost();
  if (lost != lost_sockets_) {
    for (const std::string& line : lost) os::Log(os::LogLevel::kError, line);
  }
  lost_sockets_ = std::move(lost);
}

void Monitor::CheckAccounts() {
  ++checks_;
  const absl::Status status = hub_->Inspect([this](const core::Engine& engine, const Sessions&) {
    return engine.CheckSome(kChecked, &checked_to_);
  });
  if (status.ok() || contradictions_.size() >= kMostContradictions) return;
  const std::string what(status.message());
  if (!contradictions_.insert(what).second) return;
  os::Log(os::LogLevel::kError, "the accounts contradict themselves", {{"error", what}});
}

bool Monitor::IsDrained() const {
  return hub_->Inspect(
      [](const core::Engine& engine, const Sessions&) { return engine.jobs().drained(); });
}

// No file is looked at: a file system that hangs is no reason to restart the daemon.
HealthReading Monitor::ReadLife() const {
  HealthReading reading;
  reading.serving = vitals_->serving.load();
  reading.stopping = vitals_->stopping.load();
  reading.turn = vitals_->LongestTurn(Now());
  return reading;
}

HealthReading Monitor::ReadHealth() const {
  HealthReading reading = ReadLife();
  reading.sessions_survive = vitals_->survival.load() != SessionSurvival::kLost;
  if (!reading.stopping) reading.lost_sockets = vitals_->sockets.Lost();
  reading.contradictions.assign(contradictions_.begin(), contradictions_.end());
  if (hub_->gpus() != nullptr) AddGpus(*hub_->gpus(), &reading);
  return reading;
}

metrics::HttpResponse Monitor::ShowPlan(uint64_t session) {
  metrics::HttpResponse response = {.content_type = kHtml, .body = {}};
  if (!plans_.Take(Now())) {
    return {.code = 429,
            .reason = "Too Many Requests",
            .body = "Plans take time to draw; ask again in a second.\n"};
  }
  const shm::SessionId id{session};
  SessionPtr found;
  std::shared_ptr<const StoredPlan> kept;  // read without the hub's mutex
  hub_->Inspect([&](const core::Engine&, const Sessions& sessions) {
    const auto place = sessions.find(id);
    if (place == sessions.end() || place->second->ended()) return;
    found = place->second;
    kept = found->stored_plan;
  });
  absl::StatusOr<StoredPlan::Contents> contents = absl::NotFoundError(
      found == nullptr ? "There is no such session, or it has ended."
                       : "It has no plan to show: none was made for it yet, or it is too large to "
                         "keep.");
  if (kept != nullptr) contents = kept->Read(id);
  if (contents.ok()) {
    response.body = PlanPage(session, found->spec(), *contents);
    return response;
  }
  response.code = 404;
  response.reason = "Not Found";
  response.body = NoPlanPage(session, std::string(contents.status().message()));
  return response;
}

metrics::HttpResponse Monitor::Handle(const std::string& path) {
  // Without the hub's mutex, which a stuck loop may hold.
  if (path == "/livez") return Livez(ReadLife());
  if (path == "/healthz") return Healthz(ReadHealth());
  if (path == "/readyz") {
    HealthReading reading = ReadHealth();
    if (reading.turn < kLongestTurn) reading.drained = IsDrained();
    return Readyz(reading);
  }
  metrics::HttpResponse response;
  if (path == "/metrics") {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    if (page_.empty() || pages_.Take(Now())) page_ = metrics::TextPage(Read());
    response.body = page_;
  } else if (path == "/") {
    response.content_type = kHtml;
    response.body = metrics::LivePage();
  } else if (const std::optional<uint64_t> session = SessionOfPath(path); session.has_value()) {
    return ShowPlan(*session);
  } else {
    response.code = 404;
    response.reason = "Not Found";
    response.body = "There are /, /plan/SESSION, /metrics, /healthz, /livez and /readyz here.\n";
  }
  return response;
}

}  // namespace geminid::service
