// The part of the model and of the batch on one rank, and the memory that it needs.
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
  std::vector<ModelPart> parts;  // of its stage, in the order of the forward pass
  BatchPlan batch;
};

// `mesh` was made from options.parallel.
RankShare ShareOf(const TrainOptions& options, const collectives::Mesh& mesh, int rank);

// INVALID_ARGUMENT if mesh or batch do not allow so many ranks. --parallel auto allows any number.
absl::Status CheckShares(const TrainOptions& options, int ranks);

// One part for each stage, in order, by parallel::SplitLayers with the costs of the layers and of
// the output layer. The embedding has no products and counts as free.
std::vector<ModelPart> SplitModel(const ModelConfig& config, int stages);

// The flag that allows the run another number of ranks; null: there is none.
const char* FlagOfOtherRanks(const TrainOptions& options);
// The number of ranks for which the run's own daemon has room. The run begins with `ranks`.
int MostRanksOf(const TrainOptions& options, int ranks);
// INVALID_ARGUMENT if these flags contradict each other or `ranks`, with which the run begins.
absl::Status CheckRankLimits(const TrainOptions& options, int ranks);

// The shape of one micro-batch on any rank of `world_size`; with tensor parallelism, the shape of
// the micro-batch of all ranks that share layers.
MicroBatchShape ShapeOfShare(const TrainOptions& options, int world_size);

// The pipeline stage whose ranks are asked about. Unset: the stage with the largest need, which is
// a bound on all stages that all ranks agree on.
using OfStage = std::optional<int>;

// The largest part of the model on such a rank.
ModelConfig LargestPart(const TrainOptions& options, OfStage stage = {});
// The layers whose activations it holds at once, counted once for each micro-batch in flight, as
// one model.
ModelConfig LayersInFlight(const TrainOptions& options, OfStage stage = {});

// The tiling for the device that the options ask for. If a daemon gives a GPU unasked, this is the
// host's.
Tiling TilingOf(const TrainOptions& options);

// The number of its parameters.
uint64_t ParametersOfShare(const TrainOptions& options, OfStage stage = {});

// The bytes that are needed to keep the activations of all micro-batches in flight.
uint64_t KeptBytesOfShare(const TrainOptions& options, int world_size, OfStage stage = {});

// An upper bound of the rank's workspace, as WorkspaceBytesBound.
uint64_t WorkspaceBytesOfShare(const TrainOptions& options, int world_size, size_t threads,
                               OfStage stage = {});

// The bytes of each item that a micro-batch of the rank can offload (Transformer::ItemBytes); empty
// if the run offloads no activations. InputBytesOfShare: the bytes of an item's input.
std::vector<uint64_t> ItemBytesOfShare(const TrainOptions& options, int world_size);
uint64_t InputBytesOfShare(const TrainOptions& options, int world_size);

// Bytes for weight, remainder and the optimizer's arrays; the maximum over the optimizers in use.
uint64_t StateBytesPerParameter(const TrainOptions& options);

// The bytes of a rank's part of the model, all on its device, with some room to spare.
uint64_t WholeModelBytes(const TrainOptions& options, OfStage stage = {});

// The arena with which nothing is ever evicted from a rank's device, with some room to spare.
uint64_t UnlimitedDeviceBytes(const TrainOptions& options, int world_size, size_t threads,
                              OfStage stage = {});

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_RANK_SHARE_H_
