// A plan with what following it needs: which chunks each moment uses, and what lies where before
// it. Pure.
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
  // The plan's offsets count from `base_bytes`. `moments` are those of the trace it was made from.
  PlannedRun(Plan plan, std::vector<TraceMoment> moments, uint64_t base_bytes);

  // The plan's loads go to these places instead, which count from `base_bytes` too (HomesOf).
  void PlaceAtHome(std::vector<uint64_t> homes);
  bool has_homes() const { return !homes_.empty(); }
  // In the arena.
  std::optional<uint64_t> HomeOf(uint32_t chunk) const {
    if (homes_.empty()) return std::nullopt;
    return base_bytes_ + homes_[chunk];
  }

  const Plan& plan() const { return plan_; }
  const std::vector<TraceMoment>& moments() const { return moments_; }
  size_t size() const { return uses_.size(); }
  uint64_t base_bytes() const { return base_bytes_; }

  // Ascending.
  const std::vector<uint32_t>& uses(size_t moment) const { return uses_[moment]; }
  const PlannedMoment& moment(size_t moment) const { return plan_.moments[moment]; }
  uint64_t workspace_bytes(size_t moment) const { return moments_[moment].workspace_bytes; }
  uint64_t OffsetOf(const PlannedLoad& load) const { return base_bytes_ + load.device_offset; }

  // The chunks in the arena, or on their way there, before the loads of a moment; `moment` may be
  // size(). By chunk, where each lies. O(loads and drops before it).
  std::map<uint32_t, uint64_t> ResidentBefore(size_t moment) const;

  bool Uses(uint32_t chunk) const;
  // The moment at which a chunk that is there before `moment` is used next, which may be in the
  // next round; `moment` itself if it never is. O(moments).
  uint32_t NextUse(uint32_t chunk, size_t moment) const;

  // Whether the other plan differs in nothing but predictions.
  bool SameMoves(const PlannedRun& other) const;

 private:
  Plan plan_;
  std::vector<TraceMoment> moments_;
  std::vector<std::vector<uint32_t>> uses_;
  uint64_t base_bytes_ = 0;
  std::vector<uint64_t> homes_;  // by chunk, or empty
};

// Whether the plan wants something elsewhere that the operators of these moments keep holding: then
// it cannot be followed. The planner knows that a chunk is used by two moments, but not that it is
// held in between, and may move it where places are short.
bool MovesWhatIsKept(const PlannedRun& run, const std::vector<Moment>& moments);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_PLANNED_RUN_H_
