// Checks of a host before a run moves there. The run trains elsewhere meanwhile.
#ifndef GEMINID_TRAINING_SCALING_ARRIVAL_H_
#define GEMINID_TRAINING_SCALING_ARRIVAL_H_

#include <string>

#include "absl/status/status.h"
#include "training/data/token_source.h"
#include "training/launch/handover_memory.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Whether the daemon at `socket` takes the job and has room for it now. Other jobs may take the
// free memory before the ranks come; then the ranks wait for room.
absl::Status CheckRoomFor(const TrainOptions& options, const MoveRequest& move,
                          const std::string& socket);
// Whether this host's data are the data on which the run trains.
absl::Status CheckSameData(const MoveRequest& move, const TokenSource& data);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_ARRIVAL_H_
