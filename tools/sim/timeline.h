// A simulated run as a trace that Perfetto and chrome://tracing show.
#ifndef GEMINID_TOOLS_SIM_TIMELINE_H_
#define GEMINID_TOOLS_SIM_TIMELINE_H_

#include <string>

#include "tools/sim/simulation.h"

namespace geminid::sim {

// JSON in the Trace Event Format: per rank a process with a track each for compute, wait, up, down,
// collectives, optimizer and disk, and a counter of device memory by owner. Times in microseconds.
// The run must have kept its events (SimulationOptions::keeps_events).
std::string TimelineJson(const SimulationResult& run);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_TIMELINE_H_
