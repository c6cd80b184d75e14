// Cuts one step of one rank out of a run, and draws it.
#ifndef GEMINID_TOOLS_SIM_STEP_PICTURE_H_
#define GEMINID_TOOLS_SIM_STEP_PICTURE_H_

#include <string>

#include "tools/sim/simulation.h"

namespace geminid::sim {

// The reported steps of rank 0 alone, with times from 0: spans that began before are cut at 0, and
// the first sample has what lay on the device then. The run must have kept its events.
SimulationResult ReportedOfFirstRank(const SimulationResult& run);

// A stand-alone SVG that is readable on light and on dark pages. Every track that did anything has
// a lane, whose rectangles have titles such as "moment 3, 1.250 ms". Below is device memory by
// owner over time, under a line for the arena. `step` is what ReportedOfFirstRank returned. Spans
// too short to be told apart are drawn as one, whose title counts them.
std::string StepSvg(const std::string& title, const SimulationResult& step);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_STEP_PICTURE_H_
