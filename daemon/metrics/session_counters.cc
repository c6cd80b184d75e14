#include "daemon/metrics/session_counters.h"

#include <algorithm>
#include <limits>

namespace geminid::metrics {
namespace {

// Clients may say anything, and a sum that began again at 0 would be a counter that falls.
uint64_t SaturatingSum(uint64_t a, uint64_t b) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  return a > most - b ? most : a + b;
}

void AddTo(StallTimes* sum, const StallTimes& stalls) {
  for (size_t i = 0; i < stalls.size(); ++i) (*sum)[i] = SaturatingSum((*sum)[i], stalls[i]);
}

}  // namespace

SessionLabels OtherSessions() { return {"other", "other", "other", "other"}; }

void SessionCounters::Update(shm::SessionId session, const SessionLabels& labels,
                             const StallTimes& stalls) {
  const auto [at, first] = sessions_.try_emplace(session);
  Entry& entry = at->second;
  if (first) {
    entry.own = own_count_ < kMaxSessionSeries || MakeRoom();
    entry.series.labels = entry.own ? labels : OtherSessions();
    own_count_ += entry.own ? 1 : 0;
    has_other_ = has_other_ || !entry.own;
  }
  for (size_t i = 0; i < stalls.size(); ++i) {
    entry.series.stalls[i] = std::max(entry.series.stalls[i], stalls[i]);
  }
}

void SessionCounters::End(shm::SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (found->second.own) {
    found->second.ended = ++endings_;
    return;
  }
  AddTo(&folded_, found->second.series.stalls);
  sessions_.erase(found);
}

// Gives up the series that ended first. False if all of them are alive.
bool SessionCounters::MakeRoom() {
  auto oldest = sessions_.end();
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (it->second.ended == 0) continue;
    if (oldest == sessions_.end() || it->second.ended < oldest->second.ended) oldest = it;
  }
  if (oldest == sessions_.end()) return false;
  AddTo(&folded_, oldest->second.series.stalls);
  has_other_ = true;
  sessions_.erase(oldest);
  --own_count_;
  return true;
}

std::vector<SessionCounters::Series> SessionCounters::Read() const {
  std::vector<Series> all;
  Series other = {.labels = OtherSessions(), .stalls = folded_};
  for (const auto& [session, entry] : sessions_) {
    if (entry.own) {
      all.push_back(entry.series);
    } else {
      AddTo(&other.stalls, entry.series.stalls);
    }
  }
  if (has_other_) all.push_back(other);
  return all;
}

SessionLabels SessionCounters::LabelsOf(shm::SessionId session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? OtherSessions() : found->second.series.labels;
}

}  // namespace geminid::metrics
