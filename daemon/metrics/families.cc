#include "daemon/metrics/families.h"

#include <prometheus/text_serializer.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::metrics {
namespace {

using ::prometheus::ClientMetric;
using ::prometheus::MetricFamily;
using ::prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr std::array<shm::Direction, 2> kBothDirections = {shm::Direction::kHostToDevice,
                                                           shm::Direction::kDeviceToHost};
constexpr double kSecondsPerNanosecond = 1e-9;

MetricFamily NewFamily(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void Add(MetricFamily* family, Labels labels, double value) {
  ClientMetric& metric = family->metric.emplace_back();
  metric.label = std::move(labels);
  if (family->type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

MetricFamily Single(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family = NewFamily(name, help, type);
  Add(&family, {}, value);
  return family;
}

// The label `device` is that of the device tier alone.
Labels LabelsOf(const core::Account& account) {
  Labels labels = {{"tier", shm::Name(account.tier)}};
  if (account.tier == shm::Tier::kDevice) {
    labels.push_back({"device", absl::StrCat(shm::Value(account.device))});
  }
  return labels;
}

Labels With(Labels labels, const char* name, std::string value) {
  labels.push_back({name, std::move(value)});
  return labels;
}

void AddTiers(const Reading& reading, std::vector<MetricFamily>* families) {
  MetricFamily capacity =
      NewFamily("geminid_tier_capacity_bytes", "Memory of the tier that may be handed out.",
                MetricType::Gauge);
  MetricFamily bytes = NewFamily(
      "geminid_tier_bytes",
      "Memory of the tier: in_use by chunks, reserved without a chunk in it, free. They add up to "
      "the capacity.",
      MetricType::Gauge);
  for (const auto& [account, totals] : reading.accounts) {
    const Labels labels = LabelsOf(account);
    Add(&capacity, labels, static_cast<double>(totals.capacity_bytes));
    Add(&bytes, With(labels, "state", "in_use"), static_cast<double>(totals.in_use_bytes));
    Add(&bytes, With(labels, "state", "reserved"), static_cast<double>(totals.reserved_bytes));
    Add(&bytes, With(labels, "state", "free"), static_cast<double>(totals.free_bytes));
  }
  MetricFamily in_use =
      NewFamily("geminid_in_use_bytes", "Memory of chunks by what is in them.", MetricType::Gauge);
  std::map<std::pair<core::Account, shm::ChunkKind>, uint64_t> sums;
  for (const auto& [account, totals] : reading.accounts) {
    for (int kind = 1; kind <= static_cast<int>(shm::ChunkKind::kGeneric); ++kind) {
      sums[{account, static_cast<shm::ChunkKind>(kind)}] = 0;
    }
  }
  for (const core::LedgerLine& line : reading.lines) sums[{line.account, line.kind}] += line.bytes;
  for (const auto& [key, sum] : sums) {
    Add(&in_use, With(LabelsOf(key.first), "kind", shm::Name(key.second)),
        static_cast<double>(sum));
  }
  families->insert(families->end(), {capacity, bytes, in_use});
}

void AddTransfers(const Reading& reading, std::vector<MetricFamily>* families) {
  MetricFamily bytes =
      NewFamily("geminid_transfer_bytes_total", "Bytes copied under tickets.", MetricType::Counter);
  MetricFamily count =
      NewFamily("geminid_transfers_total", "Copies made under tickets.", MetricType::Counter);
  MetricFamily in_flight = NewFamily(
      "geminid_tickets_in_flight", "Copies granted and not reported complete.", MetricType::Gauge);
  MetricFamily overdue = NewFamily("geminid_overdue_tickets_total",
                                   "Tickets that were not complete in time.", MetricType::Counter);
  for (size_t index = 0; index < reading.devices.size(); ++index) {
    const Reading::DeviceReading& device = reading.devices[index];
    const Labels of_device = {{"device", absl::StrCat(index)}};
    for (const shm::Direction direction : kBothDirections) {
      const Labels of_link = With(of_device, "direction", shm::Name(direction));
      for (int i = 1; i < core::kCauses; ++i) {
        const auto cause = static_cast<shm::TransferCause>(i);
        const core::TransferCount& total = device.transfers.At(direction, cause);
        const Labels labels = With(of_link, "cause", shm::Name(cause));
        Add(&bytes, labels, static_cast<double>(total.bytes));
        Add(&count, labels, static_cast<double>(total.transfers));
      }
      Add(&in_flight, of_link,
          device.tickets_in_flight[static_cast<size_t>(core::Index(direction))]);
    }
    Add(&overdue, of_device, static_cast<double>(device.overdue_tickets));
  }
  families->insert(families->end(), {bytes, count, in_flight, overdue});
}

Labels LabelsOf(const SessionLabels& session) {
  return {{"tenant", session.tenant},
          {"job", session.job},
          {"rank", session.rank},
          {"session", session.session}};
}

void AddSessions(const Reading& reading, std::vector<MetricFamily>* families) {
  MetricFamily stall = NewFamily(
      "geminid_client_stall_seconds_total",
      "Time a rank's computation waited, as the client counts it; kept after its session.",
      MetricType::Counter);
  for (const SessionCounters::Series& series : reading.series) {
    for (size_t i = 0; i < series.stalls.size(); ++i) {
      Add(&stall,
          With(LabelsOf(series.labels), "cause", shm::Name(static_cast<shm::StallCause>(i))),
          static_cast<double>(series.stalls[i]) * kSecondsPerNanosecond);
    }
  }
  MetricFamily plan =
      NewFamily("geminid_plan_transfer_bytes",
                "Host-to-device bytes per iteration by the rank's plan.", MetricType::Gauge);
  MetricFamily bound =
      NewFamily("geminid_plan_transfer_bytes_lower_bound",
                "What no plan for the same trace can go below.", MetricType::Gauge);
  struct PlanSums {
    uint64_t bytes = 0;
    uint64_t bound_bytes = 0;
  };
  std::map<SessionLabels, PlanSums> plans;  // several sessions may be "other"
  for (const SessionReading& session : reading.sessions) {
    PlanSums& sums = plans[session.labels];
    sums.bytes += session.plan_transfer_bytes;
    sums.bound_bytes += session.plan_transfer_bytes_lower_bound;
  }
  for (const auto& [labels, sums] : plans) {
    Add(&plan, LabelsOf(labels), static_cast<double>(sums.bytes));
    Add(&bound, LabelsOf(labels), static_cast<double>(sums.bound_bytes));
  }
  MetricFamily sessions =
      NewFamily("geminid_sessions", "Sessions: attached clients, and kept memory of dead ones.",
                MetricType::Gauge);
  for (const core::SessionState state :
       {core::SessionState::kAttached, core::SessionState::kKept}) {
    double count = 0;
    for (const SessionReading& session : reading.sessions) count += session.state == state ? 1 : 0;
    Add(&sessions, {{"state", core::Name(state)}}, count);
  }
  families->insert(families->end(), {stall, plan, bound, sessions});
}

void AddCounters(const Reading& reading, std::vector<MetricFamily>* families) {
  const auto add = [&](const char* name, const char* help, uint64_t value) {
    families->push_back(Single(name, help, MetricType::Counter, static_cast<double>(value)));
  };
  const core::EngineCounters& counters = reading.counters;
  add("geminid_requests_total", "Requests taken from the sessions' rings.", counters.requests);
  add("geminid_request_errors_total", "Requests answered with an error.", counters.request_errors);
  add("geminid_evictions_total", "Device copies given up to make room.", counters.evictions);
  add("geminid_evictions_refused_total", "Evictions given up because of a lease.",
      counters.evictions_refused_by_lease);
  add("geminid_sessions_opened_total", "Sessions ever attached.", counters.sessions_opened);
  add("geminid_sessions_expired_total", "Kept sessions whose time was over.",
      counters.sessions_expired);
  add("geminid_invariant_violations_total",
      "Times the accounts contradicted themselves. Anything but 0 is a bug.",
      reading.invariant_violations);
}

void AddOverhead(const Reading& reading, std::vector<MetricFamily>* families) {
  families->push_back(Single("geminid_overhead_bytes",
                             "At most so much shared memory is no tier's: tables and rings of "
                             "sessions, records of chunks.",
                             MetricType::Gauge, static_cast<double>(reading.overhead_bytes)));
}

void AddLimits(const Reading& reading, std::vector<MetricFamily>* families) {
  MetricFamily total =
      NewFamily("geminid_limit", "What all tenants together may have.", MetricType::Gauge);
  MetricFamily used = NewFamily("geminid_limit_used", "What they have of it.", MetricType::Gauge);
  MetricFamily refused =
      NewFamily("geminid_limit_refused_total",
                "Times a tenant wanted more than a limit gives it, and was refused or had to wait.",
                MetricType::Counter);
  for (const Reading::LimitReading& limit : reading.limits) {
    const Labels labels = {{"limit", limit.name}};
    Add(&total, labels, static_cast<double>(limit.total));
    Add(&used, labels, static_cast<double>(limit.used));
  }
  for (const core::Refusals::Row& row : reading.refusals) {
    Add(&refused, {{"limit", row.limit}, {"tenant", row.tenant}}, static_cast<double>(row.times));
  }
  MetricFamily of_tenant =
      NewFamily("geminid_tenant_limit",
                "What each tenant may have; 0: what the machine's size gives.", MetricType::Gauge);
  for (const auto& [name, value] : reading.tenant_limits) {
    Add(&of_tenant, {{"limit", name}}, static_cast<double>(value));
  }
  families->insert(families->end(), {total, used, of_tenant, refused});
}

void AddProcess(const ProcessReading& process, std::vector<MetricFamily>* families) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    families->push_back(Single(name, help, MetricType::Gauge, value));
  };
  families->push_back(Single("process_cpu_seconds_total", "User and system time.",
                             MetricType::Counter, process.cpu_seconds));
  gauge("process_start_time_seconds", "Start of the process since the Unix epoch.",
        process.start_time_seconds);
  gauge("process_resident_memory_bytes", "Resident memory, shared pages included.",
        static_cast<double>(process.resident_bytes));
  gauge("process_virtual_memory_bytes", "Virtual memory.",
        static_cast<double>(process.virtual_bytes));
  gauge("process_open_fds", "Open descriptors.", static_cast<double>(process.open_fds));
  gauge("process_max_fds", "Most descriptors that may be open.",
        static_cast<double>(process.max_fds));
  gauge("process_threads", "Threads.", static_cast<double>(process.threads));
}

}  // namespace

std::vector<MetricFamily> Families(const Reading& reading) {
  std::vector<MetricFamily> families;
  MetricFamily build =
      NewFamily("geminid_build_info", "Always 1; the label says which build.", MetricType::Gauge);
  Add(&build, {{"version", reading.version}}, 1);
  families.push_back(build);
  AddTiers(reading, &families);
  AddTransfers(reading, &families);
  AddSessions(reading, &families);
  AddCounters(reading, &families);
  AddOverhead(reading, &families);
  AddLimits(reading, &families);
  AddProcess(reading.process, &families);
  return families;
}

std::string TextPage(const std::vector<MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace geminid::metrics
