// What the ranks of a run find where they are: memory and speeds, by trying. Some tens of
// milliseconds.
#ifndef GEMINID_TOOLS_TRAINER_RANKS_PLACE_H_
#define GEMINID_TOOLS_TRAINER_RANKS_PLACE_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/rank_info.h"
#include "tools/trainer/mesh_choice.h"
#include "tools/trainer/options.h"
#include "tools/trainer/restarts.h"

namespace geminid::trainer {

// Of ranks that compute on the host, on so many threads each. All ranks must call it and get the
// same: the least memory and the slowest rank. Hosts with different numbers of ranks count as one,
// whose ranks talk as fast as all of them do.
absl::StatusOr<RanksPlace> FindRanksPlace(const TrainOptions& options, size_t threads,
                                          const collectives::RankInfo& info,
                                          collectives::Communicator& communicator);

// The mesh for such ranks. Ranks on GPUs, and ranks that are started again after a death, share
// data alone. All ranks must call it and get the same.
absl::StatusOr<MeshChoice> FindMesh(const TrainOptions& options, size_t threads,
                                    const collectives::RankInfo& info, const Restarts& restarts,
                                    collectives::Communicator& communicator);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_RANKS_PLACE_H_
