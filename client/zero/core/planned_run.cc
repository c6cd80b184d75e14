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
    uses_.push_back(std::move(chunks));
  }
}

void PlannedRun::PlaceAtHome(std::vector<uint64_t> homes) {
  homes_ = std::move(homes);
  for (PlannedPlacement& placement : plan_.resident_at_start) {
    placement.device_offset = homes_[placement.index];
  }
  for (PlannedMoment& moment : plan_.moments) {
    for (PlannedLoad& load : moment.loads) load.device_offset = homes_[load.index];
  }
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

bool PlannedRun::Uses(uint32_t chunk) const {
  return std::ranges::any_of(
      uses_, [chunk](const auto& chunks) { return std::ranges::binary_search(chunks, chunk); });
}

uint32_t PlannedRun::NextUse(uint32_t chunk, size_t moment) const {
  for (size_t i = 0; i < size(); ++i) {
    const size_t at = (moment + i) % size();
    if (std::ranges::binary_search(uses_[at], chunk)) return static_cast<uint32_t>(at);
  }
  return static_cast<uint32_t>(moment);
}

bool MovesHeldChunks(const PlannedRun& run, const std::vector<Moment>& moments) {
  std::map<uint32_t, uint64_t> before;  // by chunk: its offset in the previous moment
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
