#include "daemon/service/sessions/session_statistics.h"

#include "absl/strings/str_cat.h"

namespace geminid::service {

void SessionStatistics::Note(const Locked& locked, const ClientSession& session) {
  const core::SessionSpec& spec = session.spec();
  const ClientNumbers numbers = session.ReadNumbers();
  const core::TransferTotals totals = locked.engine().transfers().TotalsOf(session.id());
  metrics::SessionCounts counts = {
      .stalls = numbers.stall_nanoseconds,
      .queued = numbers.queued_nanoseconds,
      .steps = numbers.step,
      .disk_bytes = {numbers.disk.read_bytes, numbers.disk.written_bytes}};
  for (size_t i = 0; i < counts.transfer_bytes.size(); ++i) {
    for (const core::TransferCount& count : totals.counts[i]) {
      counts.transfer_bytes[i] += count.bytes;
    }
  }
  counters_.Update(session.id(),
                   {.tenant = spec.tenant,
                    .job = spec.job,
                    .rank = absl::StrCat(spec.rank),
                    .session = absl::StrCat(shm::Value(session.id()))},
                   counts, static_cast<uint64_t>(session.AgeNanoseconds()));
}

void SessionStatistics::NoteAll(const Locked& locked) {
  for (const auto& [id, session] : locked.sessions()) {
    if (!session->ended()) Note(locked, *session);
  }
}

}  // namespace geminid::service
