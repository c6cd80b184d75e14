// A plan over an iteration, for people: which chunk lies where and when, which bytes move, and how
// full the arena is.
#ifndef GEMINID_DAEMON_PLANNER_PICTURE_PLAN_TIMELINE_H_
#define GEMINID_DAEMON_PLANNER_PICTURE_PLAN_TIMELINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/svg.h"
#include "daemon/planner/contract/plan.h"
#include "daemon/planner/contract/trace.h"
#include "daemon/planner/picture/memory_keys.h"

namespace geminid::planner {

// The occupants of the arena.
enum class Occupant : std::uint8_t { kWeights, kArriving, kLeaving, kActivations };
inline constexpr std::size_t kOccupants = 4;
inline constexpr base::SvgKey kOccupantKeys[kOccupants] = {kWeightsKey, kArrivingKey, kLeavingKey,
                                                           kActivationsKey};

// A part of a chunk's stay: one extent for the moments [begin, end) of the iteration. A stay that
// continues in the next iteration is one piece at the end and one at the beginning.
struct StaySpan {
  ChunkIndex chunk = 0;
  Occupant occupant = Occupant::kWeights;
  std::uint64_t device_offset = 0;
  Moment begin = 0;
  Moment end = 0;
  bool operator==(const StaySpan&) const = default;
};

// One moment, or several in a row.
struct TimelineRow {
  Moment first = 0;
  Moment last = 0;
  // The bytes at the moment with the largest total.
  std::array<std::uint64_t, kOccupants> bytes{};
  std::uint64_t up_bytes = 0;    // of the loads that are issued
  std::uint64_t down_bytes = 0;  // of the gradients that begin to leave
  double stall_seconds = 0;      // stalls after the last moment count to the last moment
  std::uint64_t TotalBytes() const;
  bool operator==(const TimelineRow&) const = default;
};

struct PlanTimeline {
  std::uint64_t arena_bytes = 0;
  std::vector<Chunk> chunks;
  std::vector<StaySpan> pieces;   // by begin, then by offset
  std::vector<TimelineRow> rows;  // one per moment
};

// The steady state of a plan, from its steps, its residents at the start and its stalls. The plan
// should pass CheckPlan. For another plan whose indices are within the trace, the result is some
// timeline.
PlanTimeline TimelineOf(const Trace& trace, const Plan& plan);

// The same in at most `most` rows. All rows but the last have the same number of moments.
std::vector<TimelineRow> Grouped(const std::vector<TimelineRow>& rows, std::size_t most);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PICTURE_PLAN_TIMELINE_H_
