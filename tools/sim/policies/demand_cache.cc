#include "tools/sim/policies/demand_cache.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::sim {
namespace {

using planner::ChunkIndex;
using planner::Trace;

// A state that has not repeated by then is not waited for.
constexpr uint64_t kMaxIterations = 32;

class DemandCache {
 public:
  DemandCache(const Trace& trace, const DemandRules& rules)
      : trace_(trace), rules_(rules), chunks_(trace.chunks.size()) {
    for (size_t t = trace.moments.size(); t-- > 0;) {
      for (const planner::Use& use : trace.moments[t].uses) chunks_[use.chunk].uses.push_back(t);
    }
    for (Chunk& chunk : chunks_) std::reverse(chunk.uses.begin(), chunk.uses.end());
    OrderByFirstUse();
    PlaceApart();
  }

  absl::StatusOr<std::vector<ScheduledMoment>> RunIteration(bool empty_at_end);

  // What is there, the least recently used first: all that the next iteration depends on.
  std::vector<planner::Placement> State() const {
    std::vector<ChunkIndex> present = Present();
    std::stable_sort(present.begin(), present.end(), [this](ChunkIndex a, ChunkIndex b) {
      return chunks_[a].last_used < chunks_[b].last_used;
    });
    std::vector<planner::Placement> state;
    for (const ChunkIndex chunk : present) state.push_back({chunk, chunks_[chunk].offset});
    return state;
  }
  uint64_t address_space_bytes() const { return address_space_bytes_; }

 private:
  struct Chunk {
    std::vector<size_t> uses;
    uint64_t offset = 0;
    bool present = false;
    uint64_t last_used = 0;
  };

  uint64_t Bytes(ChunkIndex chunk) const { return ExtentBytes(trace_.chunks[chunk].size_bytes); }

  std::vector<ChunkIndex> Present() const {
    std::vector<ChunkIndex> present;
    for (const ChunkIndex c : by_first_use_) {
      if (chunks_[c].present) present.push_back(c);
    }
    return present;
  }
  bool IsUsed(ChunkIndex chunk, size_t t) const {
    return std::binary_search(chunks_[chunk].uses.begin(), chunks_[chunk].uses.end(), t);
  }
  bool IsPinned(ChunkIndex chunk) const { return !rules_.pinned.empty() && rules_.pinned[chunk]; }
  CachedChunk View(ChunkIndex chunk, size_t t) const {
    const std::vector<size_t>& uses = chunks_[chunk].uses;
    const auto next = std::lower_bound(uses.begin(), uses.end(), t);
    return {chunk, chunks_[chunk].last_used, next == uses.end() ? trace_.moments.size() : *next};
  }
  void Remove(ChunkIndex chunk) {
    chunks_[chunk].present = false;
    occupied_bytes_ -= Bytes(chunk);
  }
  void Evict(ChunkIndex chunk, ScheduledMoment* moment) {
    Remove(chunk);
    moment->evictions.push_back({chunk, rules_.copies_back});
  }
  void OrderByFirstUse();
  void PlaceApart();
  bool FindPlace(ChunkIndex chunk, size_t t);
  std::optional<ChunkIndex> Victim(size_t t) const;
  absl::Status MakeRoom(size_t t, uint64_t needed_bytes, ScheduledMoment* moment);
  void LeaveToActivations(size_t t, ScheduledMoment* moment);
  absl::Status Place(ChunkIndex chunk, size_t t, ScheduledMoment* moment);
  absl::Status PlaceAllAnew(size_t t, ScheduledMoment* moment);
  void Put(ChunkIndex chunk, ScheduledMoment* moment);
  absl::Status Load(size_t t, ScheduledMoment* moment);
  void Leave(size_t t, ScheduledMoment* moment);

  const Trace& trace_;
  const DemandRules& rules_;
  std::vector<Chunk> chunks_;
  std::vector<ChunkIndex> by_first_use_;  // in which equals are looked at
  uint64_t address_space_bytes_ = 0;
  uint64_t pinned_bytes_ = 0;
  uint64_t occupied_bytes_ = 0;
  uint64_t clock_ = 0;
};

// Only those that are used: others are never there.
void DemandCache::OrderByFirstUse() {
  std::vector<bool> seen(chunks_.size(), false);
  for (const planner::MomentTrace& moment : trace_.moments) {
    for (const planner::Use& use : moment.uses) {
      if (!seen[use.chunk]) by_first_use_.push_back(use.chunk);
      seen[use.chunk] = true;
    }
  }
}

std::optional<ChunkIndex> DemandCache::Victim(size_t t) const {
  std::optional<CachedChunk> best;
  for (const ChunkIndex chunk : Present()) {
    if (IsUsed(chunk, t) || IsPinned(chunk)) continue;
    const CachedChunk candidate = View(chunk, t);
    if (!best.has_value() || rules_.leaves_before(candidate, *best)) best = candidate;
  }
  if (!best.has_value()) return std::nullopt;
  return best->chunk;
}

// Ideal memory: every chunk has an address of its own. In the arena: the pinned ones, at the
// bottom.
void DemandCache::PlaceApart() {
  for (const bool pinned : {true, false}) {
    if (!pinned) pinned_bytes_ = address_space_bytes_;
    for (ChunkIndex c = 0; c < chunks_.size(); ++c) {
      if (IsPinned(c) != pinned) continue;
      chunks_[c].offset = address_space_bytes_;
      address_space_bytes_ += Bytes(c);
    }
  }
}

// Ideal memory only.
absl::Status DemandCache::MakeRoom(size_t t, uint64_t needed_bytes, ScheduledMoment* moment) {
  while (occupied_bytes_ + needed_bytes > CapacityBytes(trace_, t)) {
    const std::optional<ChunkIndex> victim = Victim(t);
    if (!victim.has_value()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("moment ", t, " needs ", needed_bytes, " bytes more beside ",
                       occupied_bytes_, " that must stay, of ", CapacityBytes(trace_, t)));
    }
    Evict(*victim, moment);
  }
  return absl::OkStatus();
}

void DemandCache::LeaveToActivations(size_t t, ScheduledMoment* moment) {
  for (const ChunkIndex chunk : Present()) {
    if (chunks_[chunk].offset + Bytes(chunk) > CapacityBytes(trace_, t)) Evict(chunk, moment);
  }
}

// The lowest hole that is large enough.
bool DemandCache::FindPlace(ChunkIndex chunk, size_t t) {
  std::vector<std::pair<uint64_t, uint64_t>> extents;
  for (const ChunkIndex other : Present()) {
    if (IsPinned(other)) continue;
    extents.emplace_back(chunks_[other].offset, chunks_[other].offset + Bytes(other));
  }
  std::sort(extents.begin(), extents.end());
  uint64_t offset = pinned_bytes_;
  for (const auto& [begin, end] : extents) {
    if (offset + Bytes(chunk) <= begin) break;
    offset = end;
  }
  if (offset + Bytes(chunk) > CapacityBytes(trace_, t)) return false;
  chunks_[chunk].offset = offset;
  return true;
}

absl::Status DemandCache::Place(ChunkIndex chunk, size_t t, ScheduledMoment* moment) {
  if (!IsPinned(chunk)) {
    while (!FindPlace(chunk, t)) {
      const std::optional<ChunkIndex> victim = Victim(t);
      if (!victim.has_value()) return PlaceAllAnew(t, moment);
      Evict(*victim, moment);
    }
  }
  Put(chunk, moment);
  return absl::OkStatus();
}

// The chunks of this moment stand in each other's way: all of them go, and are loaded side by side.
absl::Status DemandCache::PlaceAllAnew(size_t t, ScheduledMoment* moment) {
  for (const planner::Use& use : trace_.moments[t].uses) {
    if (!chunks_[use.chunk].present || IsPinned(use.chunk)) continue;
    const auto load =
        std::find_if(moment->loads.begin(), moment->loads.end(),
                     [&](const ScheduledLoad& candidate) { return candidate.chunk == use.chunk; });
    if (load == moment->loads.end()) {
      Evict(use.chunk, moment);
    } else {
      moment->loads.erase(load);
      Remove(use.chunk);
    }
  }
  for (const planner::Use& use : trace_.moments[t].uses) {
    if (chunks_[use.chunk].present) continue;
    if (!IsPinned(use.chunk) && !FindPlace(use.chunk, t)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the chunks of moment ", t, " do not fit in ", CapacityBytes(trace_, t),
                       " bytes beside ", pinned_bytes_, " that must stay"));
    }
    Put(use.chunk, moment);
  }
  return absl::OkStatus();
}

void DemandCache::Put(ChunkIndex chunk, ScheduledMoment* moment) {
  moment->loads.push_back({chunk, chunks_[chunk].offset, /*prefetch=*/false});
  chunks_[chunk].present = true;
  occupied_bytes_ += Bytes(chunk);
}

absl::Status DemandCache::Load(size_t t, ScheduledMoment* moment) {
  ++clock_;
  const bool ideal = rules_.memory == Memory::kIdeal;
  if (!ideal) LeaveToActivations(t, moment);
  uint64_t needed_bytes = 0;
  for (const planner::Use& use : trace_.moments[t].uses) {
    if (!chunks_[use.chunk].present) needed_bytes += Bytes(use.chunk);
  }
  absl::Status status = ideal ? MakeRoom(t, needed_bytes, moment) : absl::OkStatus();
  for (const planner::Use& use : trace_.moments[t].uses) {
    if (!status.ok()) return status;
    if (chunks_[use.chunk].present) continue;
    if (ideal) {
      Put(use.chunk, moment);
    } else {
      status = Place(use.chunk, t, moment);
    }
  }
  for (const planner::Use& use : trace_.moments[t].uses) chunks_[use.chunk].last_used = clock_;
  return status;
}

void DemandCache::Leave(size_t t, ScheduledMoment* moment) {
  for (const planner::Use& use : trace_.moments[t].uses) {
    if (use.invalidates) {
      Remove(use.chunk);
    } else if (rules_.drops_after_use && !IsPinned(use.chunk) && !IsUsed(use.chunk, t + 1)) {
      Remove(use.chunk);
      moment->drops.push_back(use.chunk);
    }
  }
}

absl::StatusOr<std::vector<ScheduledMoment>> DemandCache::RunIteration(bool empty_at_end) {
  std::vector<ScheduledMoment> moments(trace_.moments.size());
  for (size_t t = 0; t < moments.size(); ++t) {
    if (absl::Status status = Load(t, &moments[t]); !status.ok()) return status;
    Leave(t, &moments[t]);
  }
  for (const ChunkIndex chunk : Present()) {  // the optimizer makes them stale
    if (trace_.chunks[chunk].frozen && !empty_at_end) continue;
    Remove(chunk);
    moments.back().drops.push_back(chunk);
  }
  return moments;
}

}  // namespace

absl::StatusOr<Schedule> RunDemandCache(const Trace& trace, const DemandRules& rules) {
  if (absl::Status status = ValidateTrace(trace); !status.ok()) return status;
  DemandCache cache(trace, rules);
  std::vector<std::vector<planner::Placement>> states = {cache.State()};
  std::vector<std::vector<ScheduledMoment>> iterations;
  Schedule schedule;
  schedule.counts_bytes_only = rules.memory == Memory::kIdeal;
  schedule.address_space_bytes = cache.address_space_bytes();
  while (iterations.size() < kMaxIterations) {
    absl::StatusOr<std::vector<ScheduledMoment>> moments = cache.RunIteration(false);
    if (!moments.ok()) return moments.status();
    iterations.push_back(*std::move(moments));
    const std::vector<planner::Placement> state = cache.State();
    const auto same = std::find_if(states.begin(), states.end(), [&](const auto& earlier) {
      return std::equal(earlier.begin(), earlier.end(), state.begin(), state.end(),
                        [](const planner::Placement& a, const planner::Placement& b) {
                          return a.chunk == b.chunk && a.device_offset == b.device_offset;
                        });
    });
    if (same == states.end()) {
      states.push_back(state);
      continue;
    }
    const auto first = static_cast<size_t>(same - states.begin());
    schedule.iterations = iterations.size() - first;
    schedule.resident_at_start = states[first];
    for (size_t i = first; i < iterations.size(); ++i) {
      schedule.moments.insert(schedule.moments.end(), iterations[i].begin(), iterations[i].end());
    }
    return schedule;
  }
  DemandCache emptied(trace, rules);
  absl::StatusOr<std::vector<ScheduledMoment>> moments = emptied.RunIteration(true);
  if (!moments.ok()) return moments.status();
  schedule.moments = *std::move(moments);
  return schedule;
}

}  // namespace geminid::sim
