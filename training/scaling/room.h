// Whether devices have room for another number of ranks.
#ifndef GEMINID_TRAINING_SCALING_ROOM_H_
#define GEMINID_TRAINING_SCALING_ROOM_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/src/job_scaling.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// So many ranks, each of which has such an arena.
struct RanksOfArenas {
  int ranks = 0;
  uint64_t arena_bytes = 0;
};
// Whether the devices, which ranks take in turn, have room for the arenas of the ranks after once
// the ranks before have gone. An arena lies on one device.
absl::Status CheckRoom(const RanksOfArenas& after, const RanksOfArenas& before,
                       std::vector<JobScaling::Device> devices);

// The devices that the run's ranks take.
std::vector<JobScaling::Device> DevicesOf(const TrainOptions& options,
                                          std::vector<JobScaling::Device> devices);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_ROOM_H_
