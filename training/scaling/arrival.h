// What a host is asked before a run comes to it, while the run trains elsewhere.
#ifndef GEMINID_TRAINING_SCALING_ARRIVAL_H_
#define GEMINID_TRAINING_SCALING_ARRIVAL_H_

#include <string>

#include "absl/status/status.h"
#include "training/data/token_source.h"
#include "training/launch/handover_memory.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Whether the daemon at `socket` takes the job and has room for it now. Memory that is free may be
// taken before the ranks come: then they wait for it.
absl::Status CheckRoomFor(const TrainOptions& options, const MoveRequest& move,
                          const std::string& socket);
// Whether this host's data are those that the run learns.
absl::Status CheckSameData(const MoveRequest& move, const TokenSource& data);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_ARRIVAL_H_
