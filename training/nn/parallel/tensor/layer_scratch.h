// The peak of scratch memory of tensor-parallel layers, in closed form, for plans and for tests of
// the layers. Pure.
//
// Elements of a linear layer, in the words of parallel_linear.h: x, w and y are a rank's blocks.
// Those in brackets are sums and take 4 bytes each, the others are operands, and take `element`
// bytes.
//
//   mode          forward                       backward
//   1D-sequence   first: X of all tokens        first: these, and [as many of dX]
//                 second: [Y of all tokens]     second: dY of all tokens
//   2D, 2.5D      2 x + 2 w, [b of a column]    x, [2 x + 2 w, b of a column]
//   3D            d (x + w), [d y]              d (x + y), [d (x + w)]
//
// and beside them what the kernel of a product asks for. What lies within a pair of layers comes on
// top of that, and [what they give until it is rounded]. Numbers are of bytes, the same on each
// rank, exact but for the alignment of blocks. Options are those that the layers take.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_LAYER_SCRATCH_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_LAYER_SCRATCH_H_

#include <cstddef>

#include "training/nn/parallel/tensor/parallel_attention.h"
#include "training/nn/parallel/tensor/parallel_cross_entropy.h"
#include "training/nn/parallel/tensor/parallel_embedding.h"
#include "training/nn/parallel/tensor/parallel_linear.h"
#include "training/nn/parallel/tensor/parallel_mlp.h"
#include "training/nn/parallel/tensor/parallel_norm.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

struct ScratchBytes {
  size_t forward = 0;
  size_t backward = 0;
};

// What a layer computes by.
struct ScratchBy {
  size_t threads = 1;              // of the scratch's pool, or 1
  size_t element = sizeof(float);  // of operands: sizeof T
  // What AttentionOptions::pieces takes of a rank's heads, if there are any.
  const ScratchBytes* pieces = nullptr;
};

// Of a linear layer, without what kernels work in.
ScratchBytes BlocksScratchOf(const TensorGrid& grid, const LinearOptions& options,
                             size_t element = sizeof(float));

ScratchBytes ScratchOf(const TensorGrid& grid, const LinearOptions& options, const ScratchBy& by);
ScratchBytes ScratchOf(const TensorGrid& grid, const MlpOptions& options, const ScratchBy& by);
ScratchBytes ScratchOf(const TensorGrid& grid, const AttentionOptions& options,
                       const ScratchBy& by);
ScratchBytes ScratchOf(const TensorGrid& grid, const NormOptions& options);
ScratchBytes ScratchOf(const TensorGrid& grid, const EmbeddingShape& shape);
ScratchBytes ScratchOf(const TensorGrid& grid, const LogitsShape& shape);

// The shape that a rank attends to by itself, or that its SequenceParallelAttention attends to with
// others.
kernels::AttentionShape AttentionOfRank(const TensorGrid& grid, const AttentionOptions& options);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LAYER_SCRATCH_H_
