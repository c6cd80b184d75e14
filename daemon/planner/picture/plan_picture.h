// A plan as a picture.
#ifndef GEMINID_DAEMON_PLANNER_PICTURE_PLAN_PICTURE_H_
#define GEMINID_DAEMON_PLANNER_PICTURE_PLAN_PICTURE_H_

#include <cstddef>
#include <string>

#include "daemon/planner/picture/plan_timeline.h"

namespace geminid::planner {

// The picture shows at most this many pieces, the largest ones, because more could not be told
// apart. It says how many are missing.
inline constexpr std::size_t kMostPiecesDrawn = 4000;

// A stand-alone SVG that is legible on light and on dark pages. Its parts over the moments of an
// iteration, from the top:
// - the arena from its lowest address to its end, with a rectangle for each stay of a chunk (its
//   title says all about the stay), and the workspace at the top;
// - how full the arena is, under a line for its end;
// - the bytes that move up and down, and the waits.
std::string PlanSvg(const std::string& title, const PlanTimeline& timeline);

// "chunk 7, 1 MiB at 4 MiB: arriving, moments 3 to 5". Moments count from 0.
std::string PieceWords(const PlanTimeline& timeline, const StaySpan& piece);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PICTURE_PLAN_PICTURE_H_
