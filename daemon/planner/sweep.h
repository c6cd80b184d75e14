#ifndef GEMINID_DAEMON_PLANNER_SWEEP_H_
#define GEMINID_DAEMON_PLANNER_SWEEP_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/free_space.h"
#include "daemon/planner/problem.h"
#include "daemon/planner/stays.h"

namespace geminid::planner {

// One attempt to place all stays (place.h): sets their offsets and returns the indices of those
// that found no place, ascending. The sweeps meet where moment `cut` begins; stays alive across it
// are placed ahead of them. Splits stays where nothing else helps (walk.h). Adds the operations to
// `work`.
std::vector<std::uint32_t> SweepOnce(const Problem& problem, FreeSpace::Prefer prefer,
                                     std::int64_t cut, std::vector<Stay>& stays,
                                     std::int64_t& work);

// The moment of most capacity.
std::int64_t PeakMoment(const Problem& problem);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SWEEP_H_
