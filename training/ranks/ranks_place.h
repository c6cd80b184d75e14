// Measures, for some tens of milliseconds, the speeds of the ranks where they run. The memory is
// that of the flags, or else what a daemon grants by default.
#ifndef GEMINID_TRAINING_RANKS_RANKS_PLACE_H_
#define GEMINID_TRAINING_RANKS_RANKS_PLACE_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/mesh.h"
#include "geminid/rank_info.h"
#include "training/ranks/rank_session.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Of ranks that compute on the host, on so many threads each. All ranks must call it and get the
// same: the least memory and the slowest rank. Hosts with different numbers of ranks count as one,
// whose ranks talk as fast as all of them do.
absl::StatusOr<RanksPlace> FindRanksPlace(const TrainOptions& options, size_t threads,
                                          const collectives::RankInfo& info,
                                          collectives::Communicator& communicator);

// The mesh for such ranks; of a later start that of the first, which the launcher remembers. Ranks
// on GPUs, and those that a launcher starts again which remembers nothing, share data alone. All
// ranks must call it and get the same; rank 0 chooses.
absl::StatusOr<MeshChoice> FindMesh(const TrainOptions& options, size_t threads,
                                    const RankContext& context,
                                    collectives::Communicator& communicator);

struct RunMesh {
  TrainOptions options = {};  // with what was chosen
  std::optional<collectives::Mesh> mesh;
  std::optional<MeshChoice> choice;  // with --parallel auto
  std::string warning;               // of how it lies on the hosts; mostly empty
};

// As --parallel says, or as FindMesh. All ranks must call it.
absl::StatusOr<RunMesh> FindRunMesh(TrainOptions options, size_t threads,
                                    const RankContext& context,
                                    collectives::Communicator& communicator);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_RANKS_PLACE_H_
