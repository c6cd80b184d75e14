// A plan as a picture.
#ifndef GEMINID_DAEMON_PLANNER_PICTURE_PLAN_PICTURE_H_
#define GEMINID_DAEMON_PLANNER_PICTURE_PLAN_PICTURE_H_

#include <cstddef>
#include <string>

#include "daemon/planner/picture/plan_timeline.h"

namespace geminid::planner {

// Of more there would be nothing to see; the largest are drawn, and the picture says how many are
// not.
inline constexpr std::size_t kMostPiecesDrawn = 4000;

// A stand-alone SVG that reads on light and on dark pages. Over the moments of an iteration, from
// above: the arena from its lowest address to its end, with a rectangle for each stay of a chunk,
// whose title says all of it, and the workspace at its top; how full it is, under a line for its
// end; and what moves up and down, and what is waited for.
std::string PlanSvg(const std::string& title, const PlanTimeline& timeline);

// "chunk 7, 1 MiB at 4 MiB: arriving, moments 3 to 5"; moments are counted from 0.
std::string PieceWords(const PlanTimeline& timeline, const Piece& piece);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PICTURE_PLAN_PICTURE_H_
