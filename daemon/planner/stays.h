#ifndef GEMINID_DAEMON_PLANNER_STAYS_H_
#define GEMINID_DAEMON_PLANNER_STAYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/planner/plan.h"
#include "daemon/planner/problem.h"
#include "daemon/planner/what.h"

namespace geminid::planner {

// A residency in the making: consecutive uses of one item bridged by kept gaps. Moments are
// unrolled as in Residency. A permanent stay bridges all gaps of its item, the one over the
// boundary included.
struct Stay {
  std::uint32_t item = 0;
  std::uint32_t first_use = 0;  // index into the item's uses; the others follow, wrapping around
  std::uint32_t num_uses = 0;
  bool permanent = false;
  std::int64_t begin = 0;
  std::int64_t first_moment = 0;
  std::int64_t last_moment = 0;
  std::int64_t end = 0;
  std::int64_t offset_bytes = 0;
  // Why the load is not issued earlier; kLink if nothing stopped it.
  StallCause limit = StallCause::kLink;
};

// One stay per maximal run of kept gaps, beginning at its first use (nothing prefetched).
std::vector<Stay> BuildStays(const Problem& problem, const Kept& kept);

// The j-th use of the stay, unrolled.
std::int64_t UseMoment(const Problem& problem, const Stay& stay, std::uint32_t j);

// The gap after the j-th use of the stay, as an index into problem.gaps.
std::size_t GapAfter(const Problem& problem, const Stay& stay, std::uint32_t j);

// Breaks the stay stays[index] after its j-th use (j + 1 < num_uses, or any j if permanent). What
// follows is a new load at the end of `stays`, or the same stay if it was permanent.
void SplitAfter(const Problem& problem, std::uint32_t j, std::size_t index,
                std::vector<Stay>& stays);

// Changes the stays so that none of them is alive both at `moment` and at another moment: every use
// at that moment becomes a stay of its own, and nothing else is there.
void Isolate(const Problem& problem, std::int64_t moment, std::vector<Stay>& stays);

// Every use a stay of its own, nothing prefetched or draining: always placeable.
std::vector<Stay> SingleUses(const Problem& problem);

// Bytes loaded per iteration.
std::uint64_t LoadBytes(const Problem& problem, const std::vector<Stay>& stays);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_STAYS_H_
