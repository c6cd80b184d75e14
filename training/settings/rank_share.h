// The part of the model and of the batch that one rank has, and the memory that it needs.
#ifndef GEMINID_TRAINING_SETTINGS_RANK_SHARE_H_
#define GEMINID_TRAINING_SETTINGS_RANK_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "geminid/mesh.h"
#include "training/data/batches.h"
#include "training/models/parameters.h"
#include "training/settings/options.h"

namespace geminid::trainer {

struct RankShare {
  std::vector<ModelPart> parts;  // of its stage, in the order in which tokens pass them
  BatchPlan batch;
};

// `mesh` is of options.parallel.
RankShare ShareOf(const TrainOptions& options, const collectives::Mesh& mesh, int rank);

// INVALID_ARGUMENT where mesh or batch do not allow so many ranks. A mesh that is to be chosen
// fits.
absl::Status CheckShares(const TrainOptions& options, int ranks);

// One part for each stage, in order (parallel::SplitLayers), by the costs of the layers and of the
// output layer; the embedding, which multiplies nothing, counts for nothing.
std::vector<ModelPart> SplitModel(const ModelConfig& config, int stages);

// The flag by which the run may go on as another number of ranks; null: none.
const char* FlagOfOtherRanks(const TrainOptions& options);
// For how many ranks a daemon of a run's own has room, which begins with `ranks`.
int MostRanksOf(const TrainOptions& options, int ranks);
// INVALID_ARGUMENT where these flags contradict each other, or the ranks that the run begins with.
absl::Status CheckRankLimits(const TrainOptions& options, int ranks);

// Of one micro-batch on any rank of `world_size`: where layers are cut, of all that share them.
MicroBatchShape ShapeOfShare(const TrainOptions& options, int world_size);

// Of the ranks of which stage of the pipeline; unset: of those that have or take most, a bound for
// all that all ranks agree on.
using OfStage = std::optional<int>;

// The model that such a rank has, at most.
ModelConfig LargestPart(const TrainOptions& options, OfStage stage = {});
// The layers whose activations it holds at once, as those of one model: of all micro-batches that
// are on their way.
ModelConfig LayersInFlight(const TrainOptions& options, OfStage stage = {});

// That of the device that it asks for. A GPU that a daemon has given unasked is worked as the host.
Tiling TilingOf(const TrainOptions& options);

// Its parameters.
uint64_t ParametersOfShare(const TrainOptions& options, OfStage stage = {});

// What keeping the activations of all micro-batches on their way takes.
uint64_t KeptBytesOfShare(const TrainOptions& options, int world_size, OfStage stage = {});

// More workspace than the rank needs, as WorkspaceBytesBound.
uint64_t WorkspaceBytesOfShare(const TrainOptions& options, int world_size, size_t threads,
                               OfStage stage = {});

// What a micro-batch of the rank can offload, item by item (Transformer::ItemBytes); nothing where
// the run offloads no activations. Of an item, its input.
std::vector<uint64_t> ItemBytesOfShare(const TrainOptions& options, int world_size);
uint64_t InputBytesOfShare(const TrainOptions& options, int world_size);

// Weight, remainder and the optimizer's arrays, of the optimizers that have most of them.
uint64_t StateBytesPerParameter(const TrainOptions& options);

// What of the model may lie on a rank's device at once, with room to spare.
uint64_t WholeModelBytes(const TrainOptions& options, OfStage stage = {});

// What a rank's arena must hold so that nothing ever leaves it, with room to spare.
uint64_t UnlimitedDeviceBytes(const TrainOptions& options, int world_size, size_t threads,
                              OfStage stage = {});

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_RANK_SHARE_H_
