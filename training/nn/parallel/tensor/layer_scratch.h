// What tensor-parallel layers take of their scratch at once, in closed form: what plans count with,
// and what the layers are tested against. Pure.
//
// Elements of a linear layer, in the words of parallel_linear.h: x, w and y are a rank's blocks
//
//   mode          forward                       backward
//   1D            none                          none
//   1D-sequence   first: X of all tokens        first: these, and as many of dX
//                 second: Y of all tokens       second: dY of all tokens
//   2D, 2.5D      2 x + 2 w, and b of a column  3 x + 2 w, and b of a column
//   3D            d (x + w + y)                 d (2 x + w + y)
//
// and beside them what the kernel of a product asks for. What lies within a pair of layers comes on
// top of that. Numbers are of bytes, the same on each rank, exact but for the alignment of blocks.
// Options are those that the layers take.
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

// Of a linear layer, without what kernels work in.
ScratchBytes BlocksScratchOf(const TensorGrid& grid, const LinearOptions& options);

// `threads`: of the scratch's pool, or 1.
ScratchBytes ScratchOf(const TensorGrid& grid, const LinearOptions& options, size_t threads);
ScratchBytes ScratchOf(const TensorGrid& grid, const MlpOptions& options, size_t threads);
// `pieces`: what AttentionOptions::pieces takes of a rank's heads, if there are any.
ScratchBytes ScratchOf(const TensorGrid& grid, const AttentionOptions& options, size_t threads,
                       const ScratchBytes* pieces = nullptr);
ScratchBytes ScratchOf(const TensorGrid& grid, const NormOptions& options);
ScratchBytes ScratchOf(const TensorGrid& grid, const EmbeddingShape& shape);
ScratchBytes ScratchOf(const TensorGrid& grid, const LogitsShape& shape);

// Of what a rank attends to by itself, or its PieceAttention with others.
kernels::AttentionShape AttentionOfRank(const TensorGrid& grid, const AttentionOptions& options);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LAYER_SCRATCH_H_
