// A plan, and the data for following it: which chunks each moment uses, and which chunk lies where
// before it. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_PLANNED_RUN_H_
#define GEMINID_CLIENT_ZERO_CORE_PLANNED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "client/zero/core/recorder.h"
#include "geminid/plan.h"

namespace geminid::zero {

class PlannedRun {
 public:
  // The plan's offsets count from `base_bytes`. `moments`: those of the plan's trace.
  PlannedRun(Plan plan, std::vector<TraceMoment> moments, uint64_t base_bytes);

  // The plan's loads go to these homes (HomesOf) instead; they too are relative to `base_bytes`.
  void PlaceAtHome(std::vector<uint64_t> homes);
  bool has_homes() const { return !homes_.empty(); }
  // As an offset in the arena.
  std::optional<uint64_t> HomeOf(uint32_t chunk) const {
    if (homes_.empty()) return std::nullopt;
    return base_bytes_ + homes_[chunk];
  }

  const Plan& plan() const { return plan_; }
  const std::vector<TraceMoment>& moments() const { return moments_; }
  size_t size() const { return uses_.size(); }
  uint64_t base_bytes() const { return base_bytes_; }

  // In ascending order.
  const std::vector<uint32_t>& uses(size_t moment) const { return uses_[moment]; }
  const PlannedMoment& moment(size_t moment) const { return plan_.moments[moment]; }
  uint64_t workspace_bytes(size_t moment) const { return moments_[moment].workspace_bytes; }
  uint64_t OffsetOf(const PlannedLoad& load) const { return base_bytes_ + load.device_offset; }

  // By chunk, the offsets of the chunks that are in the arena, or on their way there, before the
  // loads of a moment. `moment` may be size(). O(loads and drops before it).
  std::map<uint32_t, uint64_t> ResidentBefore(size_t moment) const;

  bool Uses(uint32_t chunk) const;
  // The moment that next uses a chunk that is there before `moment`; it may be in the next round.
  // `moment` itself if no moment uses the chunk. O(moments).
  uint32_t NextUse(uint32_t chunk, size_t moment) const;

  // Whether the plans differ in nothing but their predictions.
  bool SameMoves(const PlannedRun& other) const;

 private:
  Plan plan_;
  std::vector<TraceMoment> moments_;
  std::vector<std::vector<uint32_t>> uses_;
  uint64_t base_bytes_ = 0;
  std::vector<uint64_t> homes_;  // by chunk, or empty
};

// Whether the plan moves a chunk that operators of these moments hold from one moment to another;
// such a plan cannot be followed. The planner knows that two moments use the chunk, but not that it
// is held in between, and may move it if places are short.
bool MovesHeldChunks(const PlannedRun& run, const std::vector<Moment>& moments);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_PLANNED_RUN_H_
