#include "daemon/metrics/session_counters.h"

#include <algorithm>
#include <limits>

namespace geminid::metrics {
namespace {

// Clients may report anything. A sum that overflowed would be a counter that falls.
void AddTo(uint64_t* sum, uint64_t value) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  *sum = *sum > most - value ? most : *sum + value;
}

void AddTo(SessionCounts* sum, const SessionCounts& counts) {
  for (size_t i = 0; i < counts.stalls.size(); ++i) AddTo(&sum->stalls[i], counts.stalls[i]);
  AddTo(&sum->queued, counts.queued);
  AddTo(&sum->steps, counts.steps);
  for (size_t i = 0; i < counts.transfer_bytes.size(); ++i) {
    AddTo(&sum->transfer_bytes[i], counts.transfer_bytes[i]);
  }
  for (size_t i = 0; i < counts.disk_bytes.size(); ++i) {
    AddTo(&sum->disk_bytes[i], counts.disk_bytes[i]);
  }
}

void Raise(SessionCounts* counts, const SessionCounts& now) {
  for (size_t i = 0; i < now.stalls.size(); ++i) {
    counts->stalls[i] = std::max(counts->stalls[i], now.stalls[i]);
  }
  counts->queued = std::max(counts->queued, now.queued);
  counts->steps = std::max(counts->steps, now.steps);
  for (size_t i = 0; i < now.transfer_bytes.size(); ++i) {
    counts->transfer_bytes[i] = std::max(counts->transfer_bytes[i], now.transfer_bytes[i]);
  }
  for (size_t i = 0; i < now.disk_bytes.size(); ++i) {
    counts->disk_bytes[i] = std::max(counts->disk_bytes[i], now.disk_bytes[i]);
  }
}

bool IsAnotherClient(const SessionCounts& before, const SessionCounts& now) {
  return now.transfer_bytes[0] < before.transfer_bytes[0] ||
         now.transfer_bytes[1] < before.transfer_bytes[1];
}

}  // namespace

SessionLabels OtherSessions() { return {"other", "other", "other", "other"}; }

void SessionCounters::Update(shm::SessionId session, const SessionLabels& labels,
                             const SessionCounts& counts, uint64_t age_nanoseconds) {
  const auto [at, first] = sessions_.try_emplace(session);
  Entry& entry = at->second;
  if (first) {
    const bool own = own_count_ < kMaxSessionSeries || MakeRoom(labels.tenant);
    entry.own = own;
    entry.series.labels = own ? labels : OtherSessions();
    own_count_ += own ? 1 : 0;
    has_other_ = has_other_ || !own;
  }
  if (IsAnotherClient(entry.latest, counts)) {
    entry.earlier = entry.series.counts;
    entry.latest = {};
  }
  SessionCounts believed = counts;
  for (uint64_t& stall : believed.stalls) stall = std::min(stall, age_nanoseconds);
  believed.queued = std::min(believed.queued, age_nanoseconds);
  Raise(&entry.latest, believed);
  SessionCounts all = entry.earlier;
  AddTo(&all, entry.latest);
  entry.series.counts = all;
}

void SessionCounters::End(shm::SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  if (found->second.own) {
    found->second.ended = ++endings_;
    return;
  }
  AddTo(&folded_, found->second.series.counts);
  sessions_.erase(found);
}

SessionCounters::Entries::iterator SessionCounters::FirstToEnd() {
  auto first = sessions_.end();
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (it->second.ended == 0) continue;
    if (first == sessions_.end() || it->second.ended < first->second.ended) first = it;
  }
  return first;
}

SessionCounters::Entries::iterator SessionCounters::YoungestOfTheLargest(
    const std::string& newcomer) {
  struct Held {
    size_t count = 0;
    Entries::iterator youngest;
  };
  std::map<std::string, Held> by_tenant;
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (!it->second.own) continue;
    Held& held = by_tenant[it->second.series.labels.tenant];
    ++held.count;
    held.youngest = it;  // session ids rise in the order of attaching
  }
  const auto mine = by_tenant.find(newcomer);
  const size_t least = (mine == by_tenant.end() ? 0 : mine->second.count) + 2;
  const auto most = std::ranges::max_element(
      by_tenant, {}, [](const auto& tenant) { return tenant.second.count; });
  if (most == by_tenant.end() || most->second.count < least) return sessions_.end();
  return most->second.youngest;
}

// False if no session has to give up its series for this tenant.
bool SessionCounters::MakeRoom(const std::string& tenant) {
  if (const auto ended = FirstToEnd(); ended != sessions_.end()) {
    AddTo(&folded_, ended->second.series.counts);
    sessions_.erase(ended);
  } else if (const auto youngest = YoungestOfTheLargest(tenant); youngest != sessions_.end()) {
    youngest->second.own = false;
    youngest->second.series.labels = OtherSessions();
  } else {
    return false;
  }
  has_other_ = true;
  --own_count_;
  return true;
}

SessionCounters::Reading SessionCounters::Read() const {
  Reading reading;
  Series other = {.labels = OtherSessions(), .counts = folded_};
  for (const auto& [session, entry] : sessions_) {
    if (entry.own) {
      reading.of_session[session] = reading.series.size();
      reading.series.push_back(entry.series);
    } else {
      AddTo(&other.counts, entry.series.counts);
    }
  }
  if (!has_other_) return reading;
  for (const auto& [session, entry] : sessions_) {
    if (!entry.own) reading.of_session[session] = reading.series.size();
  }
  reading.series.push_back(other);
  return reading;
}

}  // namespace geminid::metrics
