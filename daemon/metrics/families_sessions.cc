// Metrics of sessions: memory held, time waited and bytes moved by each rank.
#include <map>
#include <tuple>
#include <utility>

#include "daemon/metrics/families.h"

namespace geminid::metrics {
namespace {

constexpr double kSecondsPerNanosecond = 1e-9;

using Series = SessionCounters::Series;

LabelValues With(const Series& series, std::initializer_list<std::string> further) {
  const SessionLabels& labels = series.labels;
  LabelValues values = {labels.tenant, labels.job, labels.rank, labels.session};
  values.insert(values.end(), further);
  return values;
}

void AddCounts(const Series& series, Page* page) {
  for (size_t i = 0; i < series.counts.stalls.size(); ++i) {
    page->Add(kStall, With(series, {shm::Name(static_cast<shm::StallCause>(i))}),
              static_cast<double>(series.counts.stalls[i]) * kSecondsPerNanosecond);
  }
  page->Add(kAdmissionWait, With(series, {}),
            static_cast<double>(series.counts.queued) * kSecondsPerNanosecond);
  page->Add(kSteps, With(series, {}), static_cast<double>(series.counts.steps));
  for (const size_t i : {0, 1}) {
    const char* const direction = i == 0 ? "read" : "written";
    page->Add(kClientDiskTraffic, With(series, {direction}),
              static_cast<double>(series.counts.disk_bytes[i]));
  }
  for (const shm::Direction direction :
       {shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost}) {
    const auto index = static_cast<size_t>(core::Index(direction));
    page->Add(kSessionTransfer, With(series, {shm::Name(direction)}),
              static_cast<double>(series.counts.transfer_bytes[index]));
  }
}

// Several sessions may share the series "other", so all values are summed by series first.
void AddHeld(const Reading& reading, Page* page) {
  const auto& series = reading.counted.series;
  std::map<std::pair<size_t, core::Account>, uint64_t> bytes;
  std::map<size_t, uint64_t> files;
  std::map<size_t, PlanReading> plans;
  for (const SessionReading& session : reading.sessions) {
    const auto found = reading.counted.of_session.find(session.id);
    if (found == reading.counted.of_session.end()) continue;
    bytes[{found->second, core::kHostAccount}] += session.host_bytes;
    bytes[{found->second, core::DeviceAccount(session.device)}] += session.device_bytes;
    files[found->second] += session.disk_file_bytes;
    if (!session.plan.has_value()) continue;
    plans[found->second].transfer_bytes += session.plan->transfer_bytes;
    plans[found->second].lower_bound_bytes += session.plan->lower_bound_bytes;
  }
  for (const auto& [key, sum] : bytes) {
    const auto& [index, account] = key;
    page->Add(kSessionBytes, With(series[index], {TierLabel(account), DeviceLabel(account)}),
              static_cast<double>(sum));
  }
  for (const auto& [index, sum] : files) {
    page->Add(kClientDiskFiles, With(series[index], {}), static_cast<double>(sum));
  }
  for (const auto& [index, plan] : plans) {
    page->Add(kPlanBytes, With(series[index], {}), static_cast<double>(plan.transfer_bytes));
    page->Add(kPlanBound, With(series[index], {}), static_cast<double>(plan.lower_bound_bytes));
  }
}

// A sum over several sessions would mean nothing here, so sessions in "other" are not shown.
void AddBatches(const Reading& reading, Page* page) {
  for (const SessionReading& session : reading.sessions) {
    const auto found = reading.counted.of_session.find(session.id);
    if (found == reading.counted.of_session.end()) continue;
    const Series& series = reading.counted.series[found->second];
    if (series.labels == OtherSessions()) continue;
    const auto add = [&](const Metric& metric, double value) {
      if (value > 0) page->Add(metric, With(series, {}), value);
    };
    add(kBatch, session.batch.per_step);
    add(kNoiseScale, session.batch.noise_scale);
    add(kAdvisedBatch, session.batch.advised_per_step);
  }
}

void AddRegistrations(const Reading& reading, Page* page) {
  std::map<size_t, shm::HostRegistration> sums;
  for (const SessionReading& session : reading.sessions) {
    const auto found = reading.counted.of_session.find(session.id);
    if (found == reading.counted.of_session.end() || !session.registration.has_value()) continue;
    shm::HostRegistration& sum = sums[found->second];
    sum.bytes += session.registration->bytes;
    sum.registered_bytes += session.registration->registered_bytes;
    sum.refused_bytes += session.registration->refused_bytes;
    sum.pieces += session.registration->pieces;
    sum.registered_pieces += session.registration->registered_pieces;
    sum.refused_pieces += session.registration->refused_pieces;
  }
  for (const auto& [index, sum] : sums) {
    const auto add = [&](const Metric& metric, const char* state, uint64_t value) {
      page->Add(metric, With(reading.counted.series[index], {state}), static_cast<double>(value));
    };
    add(kRegistrationBytes, "registered", sum.registered_bytes);
    add(kRegistrationBytes, "refused", sum.refused_bytes);
    add(kRegistrationBytes, "waiting", sum.bytes - sum.registered_bytes - sum.refused_bytes);
    add(kRegistrationPieces, "registered", sum.registered_pieces);
    add(kRegistrationPieces, "refused", sum.refused_pieces);
    add(kRegistrationPieces, "waiting", sum.pieces - sum.registered_pieces - sum.refused_pieces);
  }
}

void AddInUse(const Reading& reading, Page* page) {
  std::map<std::tuple<size_t, core::Account, shm::ChunkKind>, uint64_t> sums;
  for (const core::LedgerLine& line : reading.lines) {
    const auto found = reading.counted.of_session.find(line.session);
    if (found == reading.counted.of_session.end()) continue;
    sums[{found->second, line.account, line.kind}] += line.bytes;
  }
  for (const auto& [key, sum] : sums) {
    const auto& [index, account, kind] = key;
    page->Add(kSessionInUse,
              With(reading.counted.series[index],
                   {TierLabel(account), DeviceLabel(account), shm::Name(kind)}),
              static_cast<double>(sum));
  }
}

}  // namespace

void AddSessions(const Reading& reading, Page* page) {
  for (const Series& series : reading.counted.series) AddCounts(series, page);
  AddHeld(reading, page);
  AddBatches(reading, page);
  AddRegistrations(reading, page);
  AddInUse(reading, page);
  for (const core::SessionState state :
       {core::SessionState::kAttached, core::SessionState::kKept}) {
    double count = 0;
    for (const SessionReading& session : reading.sessions) count += session.state == state ? 1 : 0;
    page->Add(kSessions, {core::Name(state)}, count);
  }
  page->Add(kSessionsLimit, {}, static_cast<double>(reading.session_limit.limit));
  page->Add(kSessionsOpened, {}, static_cast<double>(reading.counters.sessions_opened));
  page->Add(kSessionsKept, {}, static_cast<double>(reading.counters.sessions_kept));
  page->Add(kSessionsResumed, {}, static_cast<double>(reading.counters.sessions_resumed));
  page->Add(kSuccessorWait, {}, reading.counters.successor_waits);
  page->Add(kSessionsTakenOver, {"go_on"}, static_cast<double>(reading.take_over.sessions));
  page->Add(kSessionsTakenOver, {"lost"}, static_cast<double>(reading.take_over.lost));
  page->Add(kTakeOverSeconds, {}, reading.take_over.seconds);
  page->Add(kSessionsExpired, {}, static_cast<double>(reading.counters.sessions_expired));
  page->Add(kChunks, {}, static_cast<double>(reading.chunk_limit.used));
  page->Add(kChunksLimit, {}, static_cast<double>(reading.chunk_limit.limit));
  page->Add(kPlanMemory, {}, static_cast<double>(reading.plan_memory_bytes.used));
  page->Add(kPlanMemoryLimit, {}, static_cast<double>(reading.plan_memory_bytes.limit));
}

}  // namespace geminid::metrics
