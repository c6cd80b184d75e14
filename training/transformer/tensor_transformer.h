// A transformer, or a part of one, whose layers are sharded over the ranks of a grid: a decoder
// (decoder.h) of the layers of training/nn/parallel/tensor, in fp32. training/nn/wide_source.h
// presents its parameters as fp32.
//
// Of each layer a rank keeps its blocks of the input, of the norm's output, and of what the layer
// keeps; or the input alone, if activations are recomputed. All of it is workspace, and so is the
// scratch memory of a layer.
#ifndef GEMINID_TRAINING_TRANSFORMER_TENSOR_TRANSFORMER_H_
#define GEMINID_TRAINING_TRANSFORMER_TENSOR_TRANSFORMER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/tensor/tensor_groups.h"
#include "training/nn/tensor_parameters.h"
#include "training/transformer/tensor_layers.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

struct TensorSurroundings {
  collectives::TensorGroups& groups;
  collectives::Communicator& ranks;  // of the grid
  kernels::ThreadPool* threads = nullptr;
  TensorPieces pieces = {};
};

// Every micro-batch has `shape` and the positions of the pieces, and is that of all the grid's
// ranks, each of which is given all its tokens. The parameters of the source are the blocks of
// `parameters`. What goes in and out of a part are blocks, too. The loss is with the grid's first
// rank; 0 on the others. Without dropout. `around` outlives the model. INVALID_ARGUMENT naming the
// size that must be divisible, and by what. To remember tokens and to say what follows is
// UNIMPLEMENTED.
absl::StatusOr<std::unique_ptr<Transformer>> MakeTensorTransformer(
    const ModelConfig& config, const MicroBatchShape& shape, const TensorParameters& parameters,
    const TensorSurroundings& around);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_TRANSFORMER_H_
