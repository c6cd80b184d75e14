// How fast this machine's processors do what training does besides operators.
#ifndef GEMINID_TOOLS_SIM_MEASURE_RATES_H_
#define GEMINID_TOOLS_SIM_MEASURE_RATES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/sim/machine.h"

namespace geminid::sim {

// Of one thread while `ranks` threads do the same: medians over a few rounds on memory far larger
// than the caches.
double CopyBytesPerSecond(int ranks, uint64_t piece_bytes);
double UpdateParametersPerSecond(int ranks);
double NormBytesPerSecond(int ranks);

// A gather and a scatter of `chunk_bytes` over shared memory, halfway between the two: the rate on
// idle processors, the latency while every rank computes, as it does when a gather comes.
absl::StatusOr<CollectiveModel> MeasureCollectives(int ranks, uint64_t chunk_bytes);

// From one thread's word to the start of another's work, while every rank computes: the mean.
double WakeSeconds(int ranks);

// A processor's time from one thread to another: half of what a computing thread loses when another
// one on its processor is woken and sleeps again. 0 if there is only one processor.
double SwitchSeconds();

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_MEASURE_RATES_H_
