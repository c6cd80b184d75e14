// The size of a rank's shard in tensor parallelism, and checks of model and batch for it. Pure.
#ifndef GEMINID_TRAINING_SETTINGS_TENSOR_SHARE_H_
#define GEMINID_TRAINING_SETTINGS_TENSOR_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/model/attention/attention.h"
#include "training/models/parameters.h"
#include "training/nn/blocks.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The grid of the ranks that share layers. `parallel` comes from ParseParallel.
collectives::TensorGrid GridOf(const Parallel& parallel);

// INVALID_ARGUMENT for options that tensor parallelism does not support, and for a model whose
// layers cannot be sharded over the grid.
absl::Status CheckTensor(const TrainOptions& options);

// INVALID_ARGUMENT if the grid cannot divide the sequences of a micro-batch of one of `data` ranks.
absl::Status CheckTensorBatch(const TrainOptions& options, int data);

// The elements of all blocks of `part` on one rank. The options have passed CheckTensor.
uint64_t TensorElements(const TrainOptions& options, const ModelPart& part);

// The shape of the attention of one rank of a grid, whose sequences are whole.
kernels::AttentionShape TensorAttentionShape(const TrainOptions& options,
                                             const MicroBatchShape& shape);

// The memory of one rank for one micro-batch of all the grid's ranks and so many layers: the
// activations if they are kept, and a close upper bound of all other workspace, with the layers'
// scratch (training/nn/parallel/tensor/layer_scratch.h). On a GPU a library's workspaces are
// bounded, too.
uint64_t TensorKeptBytes(const TrainOptions& options, uint64_t layers,
                         const MicroBatchShape& shape);
uint64_t TensorWorkspaceBytes(const TrainOptions& options, uint64_t layers,
                              const MicroBatchShape& shape, size_t threads);
// TensorStreamBytes: one rank's block of the residual stream. TensorItemBytes: the bytes of each
// item that is offloaded, a sublayer's input and kept activations.
uint64_t TensorStreamBytes(const TrainOptions& options, const MicroBatchShape& shape);
std::vector<uint64_t> TensorItemBytes(const TrainOptions& options, const MicroBatchShape& shape);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_TENSOR_SHARE_H_
