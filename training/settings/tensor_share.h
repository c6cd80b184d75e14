// The size of a rank's shard in tensor parallelism, and whether a model can be sharded so. Pure.
#ifndef GEMINID_TRAINING_SETTINGS_TENSOR_SHARE_H_
#define GEMINID_TRAINING_SETTINGS_TENSOR_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "training/nn/blocks.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The grid of the ranks that share layers; of ParseParallel.
collectives::TensorGrid GridOf(const Parallel& parallel);

// INVALID_ARGUMENT for what a run with cut layers cannot do, and for a model whose layers cannot be
// cut so.
absl::Status CheckTensor(const TrainOptions& options);

// INVALID_ARGUMENT if the sequences of a micro-batch, shared out over so many ranks, cannot be cut.
absl::Status CheckTensorBatch(const TrainOptions& options, int data);

// Elements of all blocks that one rank has of `part`. The options are of CheckTensor.
uint64_t TensorElements(const TrainOptions& options, const ModelPart& part);

// Of one micro-batch of all the grid's ranks and so many layers, on one rank: what keeping
// activations takes, and more than all the other workspace, but not by much: the layers' scratch
// (training/nn/parallel/tensor/layer_scratch.h) is of it.
uint64_t TensorKeptBytes(const TrainOptions& options, uint64_t layers,
                         const MicroBatchShape& shape);
uint64_t TensorWorkspaceBytes(const TrainOptions& options, uint64_t layers,
                              const MicroBatchShape& shape, size_t threads);
// What of the residual stream one rank has. And beyond what offloading takes of each item: a
// sublayer's input with what it keeps.
uint64_t TensorStreamBytes(const TrainOptions& options, const MicroBatchShape& shape);
std::vector<uint64_t> TensorItemBytes(const TrainOptions& options, const MicroBatchShape& shape);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_TENSOR_SHARE_H_
