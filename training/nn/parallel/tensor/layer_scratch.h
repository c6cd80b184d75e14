// The peak of scratch memory of tensor-parallel layers, in closed form, for plans and for tests of
// the layers. Pure.
//
// Elements of a linear layer, with the names of parallel_linear.h: x, w and y are a rank's blocks
//
//   mode          forward                       backward
//   1D            none                          none
//   1D-sequence   first: X of all tokens        first: these, and as many of dX
//                 second: Y of all tokens       second: dY of all tokens
//   2D, 2.5D      2 x + 2 w, and b of a column  3 x + 2 w, and b of a column
//   3D            d (x + w + y)                 d (2 x + w + y)
//
// plus the workspace of a product's kernel. A pair of layers adds the values between its layers.
// Results are in bytes, equal on each rank, exact except for the alignment of blocks. Options are
// those of the layers.
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

// The scratch of a linear layer, without the workspace of kernels.
ScratchBytes BlocksScratchOf(const TensorGrid& grid, const LinearOptions& options);

// `threads`: the threads of the scratch's pool, or 1.
ScratchBytes ScratchOf(const TensorGrid& grid, const LinearOptions& options, size_t threads);
ScratchBytes ScratchOf(const TensorGrid& grid, const MlpOptions& options, size_t threads);
// `pieces`: the bytes that AttentionOptions::pieces takes for a rank's heads, if there are any.
ScratchBytes ScratchOf(const TensorGrid& grid, const AttentionOptions& options, size_t threads,
                       const ScratchBytes* pieces = nullptr);
ScratchBytes ScratchOf(const TensorGrid& grid, const NormOptions& options);
ScratchBytes ScratchOf(const TensorGrid& grid, const EmbeddingShape& shape);
ScratchBytes ScratchOf(const TensorGrid& grid, const LogitsShape& shape);

// The shape that a rank attends to by itself, or that its PieceAttention attends to with others.
kernels::AttentionShape AttentionOfRank(const TensorGrid& grid, const AttentionOptions& options);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LAYER_SCRATCH_H_
