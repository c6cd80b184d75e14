#include "client/zero/core/planned_run.h"

#include <algorithm>
#include <utility>

namespace geminid::zero {
namespace {

bool SameLoad(const PlannedLoad& a, const PlannedLoad& b) {
  return a.index == b.index && a.device_offset == b.device_offset &&
         a.deadline_moment == b.deadline_moment;
}

bool SameDrop(const PlannedDrop& a, const PlannedDrop& b) {
  return a.index == b.index && a.becomes_gradient == b.becomes_gradient;
}

bool SameMoment(const PlannedMoment& a, const PlannedMoment& b) {
  return std::ranges::equal(a.loads, b.loads, SameLoad) &&
         std::ranges::equal(a.drops, b.drops, SameDrop);
}

bool SamePlacement(const PlannedPlacement& a, const PlannedPlacement& b) {
  return a.index == b.index && a.device_offset == b.device_offset;
}

}  // namespace

PlannedRun::PlannedRun(Plan plan, std::vector<TraceMoment> moments, uint64_t base_bytes)
    : plan_(std::move(plan)), moments_(std::move(moments)), base_bytes_(base_bytes) {
  for (const TraceMoment& moment : moments_) {
    std::vector<uint32_t> chunks;
    for (const TraceUse& use : moment.uses) chunks.push_back(use.index);
    std::sort(chunks.begin(), chunks.end());
    for (uint32_t chunk : chunks) {
      moments_of_[chunk].push_back(static_cast<uint32_t>(uses_.size()));
    }
    uses_.push_back(std::move(chunks));
  }
  for (const PlannedPlacement& placement : plan_.resident_at_start) {
    AddPlace(placement.index, base_bytes_ + placement.device_offset);
  }
  for (const PlannedMoment& moment : plan_.moments) {
    for (const PlannedLoad& load : moment.loads) AddPlace(load.index, OffsetOf(load));
  }
}

void PlannedRun::AddPlace(uint32_t chunk, uint64_t offset) {
  const auto same = [&](const PlannedPlacement& place) {
    return place.index == chunk && place.device_offset == offset;
  };
  if (std::ranges::none_of(places_, same)) places_.push_back({chunk, offset});
}

bool PlannedRun::LeavesAlone(uint32_t chunk, uint64_t begin, uint64_t end,
                             const std::function<uint64_t(uint32_t)>& bytes_of) const {
  return std::ranges::all_of(places_, [&](const PlannedPlacement& place) {
    return place.index == chunk || end <= place.device_offset ||
           place.device_offset + bytes_of(place.index) <= begin;
  });
}

bool PlannedRun::KeepsAll() const {
  return std::ranges::all_of(plan_.moments, [](const PlannedMoment& moment) {
    return moment.loads.empty() && moment.drops.empty();
  });
}

std::map<uint32_t, uint64_t> PlannedRun::ResidentBefore(size_t moment) const {
  std::map<uint32_t, uint64_t> resident;
  for (const PlannedPlacement& placement : plan_.resident_at_start) {
    resident[placement.index] = base_bytes_ + placement.device_offset;
  }
  for (size_t m = 0; m < moment; ++m) {
    for (const PlannedLoad& load : plan_.moments[m].loads) resident[load.index] = OffsetOf(load);
    for (const PlannedDrop& drop : plan_.moments[m].drops) resident.erase(drop.index);
  }
  return resident;
}

uint32_t PlannedRun::NextUse(uint32_t chunk, size_t moment) const {
  const auto found = moments_of_.find(chunk);
  if (found == moments_of_.end()) return static_cast<uint32_t>(moment);
  const auto next = std::ranges::lower_bound(found->second, moment);
  return next == found->second.end() ? found->second.front() : *next;
}

bool MovesWhatIsKept(const PlannedRun& run, const std::vector<Moment>& moments) {
  std::map<uint32_t, uint64_t> before;  // by chunk, where it is in the moment before
  std::map<uint32_t, uint64_t> now = run.ResidentBefore(0);
  for (size_t m = 0; m < run.size(); ++m) {
    for (const PlannedLoad& load : run.moment(m).loads) now[load.index] = run.OffsetOf(load);
    for (uint32_t chunk : moments[m].kept) {
      const auto was = before.find(chunk);
      const auto is = now.find(chunk);
      if (was != before.end() && (is == now.end() || is->second != was->second)) return true;
    }
    before = now;
    for (const PlannedDrop& drop : run.moment(m).drops) now.erase(drop.index);
  }
  return false;
}

bool PlannedRun::SameMoves(const PlannedRun& other) const {
  return base_bytes_ == other.base_bytes_ && uses_ == other.uses_ &&
         std::ranges::equal(plan_.moments, other.plan_.moments, SameMoment) &&
         std::ranges::equal(plan_.resident_at_start, other.plan_.resident_at_start, SamePlacement);
}

}  // namespace geminid::zero
