#include "daemon/metrics/families.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::metrics {
namespace {

constexpr std::array<shm::Direction, core::kDirections> kBothDirections = {
    shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost};

void AddDaemon(const Reading& reading, Page* page) {
  page->Add(kBuildInfo, {reading.version}, 1);
  page->Add(kEpoch, {}, static_cast<double>(reading.epoch));
  for (const auto& [phase, name] :
       {std::pair(DaemonPhase::kServing, "serving"), std::pair(DaemonPhase::kDrained, "drained"),
        std::pair(DaemonPhase::kStopping, "stopping")}) {
    page->Add(kPhase, {name}, phase == reading.phase ? 1 : 0);
  }
  page->Add(kReloadGood, {}, reading.last_reload_good ? 1 : 0);
  page->Add(kReloadTime, {}, reading.last_good_reload_timestamp_seconds);
  if (reading.sessions_survive.has_value()) {
    page->Add(kSessionsSurvive, {}, *reading.sessions_survive ? 1 : 0);
  }
  page->Add(kLostSockets, {}, static_cast<double>(reading.lost_sockets));
  page->Add(kChecks, {}, static_cast<double>(reading.invariant_checks));
  page->Add(kViolations, {}, static_cast<double>(reading.invariant_violations));
  page->Add(kOverhead, {}, static_cast<double>(reading.overhead_bytes));
}

void AddRequests(const Metric& metric, const RequestsReading& requests, Page* page) {
  page->Add(metric, {"done"}, static_cast<double>(requests.done));
  page->Add(metric, {"refused"}, static_cast<double>(requests.refused));
  page->Add(metric, {"gone_back"}, static_cast<double>(requests.gone_back));
}

void AddJobs(const JobsReading& jobs, Page* page) {
  for (const core::JobState state :
       {core::JobState::kGathering, core::JobState::kQueued, core::JobState::kRunning,
        core::JobState::kYielding, core::JobState::kPreempted}) {
    const auto found = jobs.by_state.find(state);
    page->Add(kJobs, {core::Name(state)},
              found == jobs.by_state.end() ? 0 : static_cast<double>(found->second));
  }
  if (jobs.oldest_wait_timestamp_seconds.has_value()) {
    page->Add(kOldestWait, {}, *jobs.oldest_wait_timestamp_seconds);
  }
  page->Add(kJobsAdmitted, {}, static_cast<double>(jobs.counters.admitted));
  page->Add(kJobsPreempted, {}, static_cast<double>(jobs.counters.preempted));
  page->Add(kJobsUndone, {}, static_cast<double>(jobs.counters.undone));
  page->Add(kSharingChanges, {"done"}, static_cast<double>(jobs.ranks_changed));
  page->Add(kSharingChanges, {"refused"}, static_cast<double>(jobs.ranks_not_changed));
  AddRequests(kScaleRequests, jobs.scales, page);
  AddRequests(kMoveRequests, jobs.moves, page);
  page->Add(kJobsShrunk, {}, static_cast<double>(jobs.shrunk));
}

void AddLink(const std::string& device, shm::Direction direction, const DeviceReading& reading,
             Page* page) {
  const LabelValues labels = {device, shm::Name(direction)};
  for (int i = 1; i < core::kCauses; ++i) {
    const auto cause = static_cast<shm::TransferCause>(i);
    const core::TransferCount& total = reading.transfers.At(direction, cause);
    const LabelValues with_cause = {device, shm::Name(direction), shm::Name(cause)};
    page->Add(kTransferBytes, with_cause, static_cast<double>(total.bytes));
    page->Add(kTransfers, with_cause, static_cast<double>(total.transfers));
  }
  const core::LinkReading& link = reading.links[static_cast<size_t>(core::Index(direction))];
  page->Add(kLinkBusy, labels, link.busy.seconds());
  page->Add(kInFlight, labels, link.flight.tickets);
  page->Add(kInFlightBytes, labels, static_cast<double>(link.flight.bytes));
  page->Add(kQueued, labels, static_cast<double>(link.queued));
  page->Add(kQueuedBytes, labels, static_cast<double>(link.queued_bytes));
  page->Add(kWaitSeconds, labels, link.waits);
  page->Add(kCopySeconds, labels, link.copies);
}

void AddLinks(const Reading& reading, Page* page) {
  for (size_t index = 0; index < reading.devices.size(); ++index) {
    const std::string device = absl::StrCat(index);
    for (const shm::Direction direction : kBothDirections) {
      AddLink(device, direction, reading.devices[index], page);
    }
    page->Add(kOverdue, {device}, static_cast<double>(reading.devices[index].overdue_tickets));
  }
}

void AddRequests(const Reading& reading, Page* page) {
  const core::EngineCounters& counters = reading.counters;
  page->Add(kRequests, {}, static_cast<double>(counters.requests));
  page->Add(kRequestErrors, {}, static_cast<double>(counters.request_errors));
  page->Add(kDrops, {}, static_cast<double>(counters.drops));
  page->Add(kEvictions, {}, static_cast<double>(counters.evictions));
  page->Add(kEvictionsRefused, {}, static_cast<double>(counters.evictions_refused_by_lease));
  for (const auto& [method, call] : reading.calls) {
    page->Add(kRpcSeconds, {method}, call.seconds);
    for (const auto& [code, times] : call.errors) {
      page->Add(kRpcErrors, {method, code}, static_cast<double>(times));
    }
  }
  for (const core::Refusals::Row& row : reading.refusals) {
    page->Add(kRefused, {row.limit, row.tenant}, static_cast<double>(row.times));
  }
}

void AddHealth(const GpuReading& gpu, Page* page) {
  const std::string device = absl::StrCat(gpu.device);
  for (const char* health : kGpuHealths) {
    page->Add(kGpuHealth, {device, health}, gpu.health == health ? 1 : 0);
  }
  const auto add = [&](const Metric& metric, const char* label, const auto& value) {
    if (value.has_value()) page->Add(metric, {device, label}, static_cast<double>(*value));
  };
  add(kGpuErrors, "load", gpu.uncorrected_errors);
  add(kGpuErrors, "ever", gpu.uncorrected_errors_ever);
  add(kGpuFaults, "retired_pages_pending", gpu.retired_pages_pending);
  add(kGpuFaults, "row_remap_pending", gpu.row_remap_pending);
  add(kGpuFaults, "row_remap_failed", gpu.row_remap_failed);
  for (const auto& [xid, times] : gpu.xids) {
    page->Add(kGpuXids, {device, absl::StrCat(xid)}, static_cast<double>(times));
  }
}

void AddGpus(const Reading& reading, Page* page) {
  for (const GpuReading& gpu : reading.gpus) {
    const std::string device = absl::StrCat(gpu.device);
    AddHealth(gpu, page);
    page->Add(kAgentUp, {device}, gpu.serving ? 1 : 0);
    page->Add(kAgentRestarts, {device}, gpu.restarts);
    if (gpu.total_bytes == 0) continue;
    page->Add(kGpuMemory, {device, "total"}, static_cast<double>(gpu.total_bytes));
    page->Add(kGpuMemory, {device, "free"}, static_cast<double>(gpu.free_bytes));
    page->Add(kGpuMemory, {device, "slabs"}, static_cast<double>(gpu.slab_bytes));
  }
}

void AddProcess(const ProcessReading& process, Page* page) {
  page->Add(kCpu, {}, process.cpu_seconds);
  const auto add = [&](const Metric& metric, const auto& value) {
    if (value.has_value()) page->Add(metric, {}, static_cast<double>(*value));
  };
  add(kStart, process.start_time_seconds);
  add(kResident, process.resident_bytes);
  add(kVirtual, process.virtual_bytes);
  add(kOpenFds, process.open_fds);
  add(kMaxFds, process.max_fds);
  add(kThreads, process.threads);
}

}  // namespace

std::string TierLabel(const core::Account& account) { return shm::Name(account.tier); }

std::string DeviceLabel(const core::Account& account) {
  return account.tier == shm::Tier::kDevice ? absl::StrCat(shm::Value(account.device)) : "";
}

std::string TextPage(const Reading& reading) {
  Page page;
  AddDaemon(reading, &page);
  AddMemory(reading, &page);
  AddTenants(reading, &page);
  AddSessions(reading, &page);
  AddJobs(reading.jobs, &page);
  AddLinks(reading, &page);
  AddGpus(reading, &page);
  AddRequests(reading, &page);
  AddProcess(reading.process, &page);
  return page.ToText();
}

}  // namespace geminid::metrics
