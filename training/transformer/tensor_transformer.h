// A transformer, or a part of one, whose layers are sharded over the ranks of a grid: a decoder
// (decoder.h) of the layers of training/nn/parallel/tensor. In 1D the shards are layers of their
// own (training/nn/layer_share.h).
//
// In bf16 the residual stream, what is kept, and all that products read is bf16, also between
// ranks. What products give and what is added up is fp32 until it is complete. So are norms and
// tables while they are computed with.
//
// For each layer a rank stores its blocks of the input, of the norm's output, and of the values
// that the layer keeps. If activations are recomputed, it stores the input alone. These values and
// the scratch memory of a layer are in the workspace.
#ifndef GEMINID_TRAINING_TRANSFORMER_TENSOR_TRANSFORMER_H_
#define GEMINID_TRAINING_TRANSFORMER_TENSOR_TRANSFORMER_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parallel/axis_ranks.h"
#include "training/nn/parallel/tensor/tensor_groups.h"
#include "training/nn/tensor_parameters.h"
#include "training/transformer/tensor_layers.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

// How a GPU computes a rank's blocks.
struct TensorGpu {
  const ModelKernels& math;
  GpuQueue& queue;                // of `math`
  collectives::AxisRanks& ranks;  // of the grid, for memory of the GPUs
};

struct TensorDependencies {
  collectives::TensorGroups& groups;  // for memory of the GPUs if these compute
  collectives::Communicator& ranks;   // of the grid
  kernels::ThreadPool* threads = nullptr;
  SequenceSlice pieces = {};
  std::optional<TensorGpu> gpu = std::nullopt;  // unset: the host computes
};

// Every micro-batch has `shape` and the positions of the pieces. All the grid's ranks compute one
// micro-batch together, and each rank gets all of its tokens. The source's parameters are the
// blocks of `parameters`. A part's inputs and outputs are blocks, too. The grid's first rank
// returns the loss; the others return 0. Without dropout. `around` outlives the model.
// INVALID_ARGUMENT names the size that must be divisible, and the divisor; on a GPU also sequences
// in pieces. MakeKeyValueCache and NextLogits are UNIMPLEMENTED.
absl::StatusOr<std::unique_ptr<Transformer>> MakeTensorTransformer(
    const ModelConfig& config, zero::DataType data_type, const MicroBatchShape& shape,
    const TensorParameters& parameters, const TensorDependencies& around);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_TRANSFORMER_H_
