// Measures the speeds of the ranks in some tens of milliseconds. Their memory is that of the flags,
// or else what a daemon grants by default.
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

// For ranks that compute on the host, on so many threads each. All ranks must call it and get the
// same result: the least memory and the speed of the slowest rank. If hosts have different numbers
// of ranks, they count as one host, with the speed of communication over all of them.
absl::StatusOr<RanksPlace> FindRanksPlace(const TrainOptions& options, size_t threads,
                                          const collectives::RankInfo& info,
                                          collectives::Communicator& communicator);

// The mesh for such ranks. Rank 0 chooses it in the first start, and the launcher's memory gives it
// to later starts. Ranks on GPUs, and restarted ranks without such memory, get data parallelism.
// All ranks must call it and get the same mesh.
absl::StatusOr<MeshChoice> FindMesh(const TrainOptions& options, size_t threads,
                                    const RankContext& context,
                                    collectives::Communicator& communicator);

struct RunMesh {
  TrainOptions options = {};  // with the chosen mesh
  std::optional<collectives::Mesh> mesh;
  std::optional<MeshChoice> choice;  // with --parallel auto
  std::string warning;               // about the mesh's place on the hosts; mostly empty
};

// The mesh of --parallel, or that of FindMesh for "auto". All ranks must call it.
absl::StatusOr<RunMesh> FindRunMesh(TrainOptions options, size_t threads,
                                    const RankContext& context,
                                    collectives::Communicator& communicator);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_RANKS_PLACE_H_
