// The arrangement of the ranks of a tensor-parallel group, and the block of each matrix of a linear
// layer Y = X W^T (+ b) that a rank holds. Pure arithmetic.
//
//   mode   ranks   axes, outermost first       traffic along them
//   1D     P       column                      everything; 1D-sequence also partitions tokens
//   2D     q q     row, column                 W along rows' index, X along columns' index (SUMMA)
//   2.5D   d q q   depth, row, column          2D in each depth; dW also along depth
//   3D     d d d   output, input, weight       Y, X and W, each along an axis of its own
//
// X is [tokens, in], W [out, in] as torch.nn.Linear stores it, Y [tokens, out], b [out]. Every
// block is contiguous in rows and in columns of its matrix, and a rank stores it densely,
// row-major.
//
//   mode         X                         W                        Y
//   1D first     whole                     out by column            out by column
//   1D second    in by column              in by column             whole
//   1D-sequence  as 1D, but matrices that are whole there have tokens by column
//   2D           tokens by row,            out by column,           tokens by row,
//                in by column              in by row                out by column
//   2.5D         as 2D, but tokens by depth, then row; W is the same in each depth
//   3D first     tokens by weight, then    out by input, then       tokens by weight, then
//                input; in by output       weight; in by output     output; out by input
//   3D second    as 3D first with the axes input and output exchanged
//
// A first layer's Y has the layout of its second layer's X, so a pair (the two products of an MLP)
// needs no exchange in between. In 2D and 2.5D all layers have the same layout. Between the pairs
// (norms, dropout, residuals) 1D-sequence partitions the tokens, while 1D has all of them on every
// rank.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_GRID_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_GRID_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "geminid/mesh.h"

namespace geminid::collectives {

enum class TensorMode : uint8_t { k1D, k2D, k25D, k3D, k1DSequence };

// "1d", "2d", "2.5d", "3d", "1d-sequence".
const char* Name(TensorMode mode);

enum class LinearRole : uint8_t { kFirst, kSecond };

class TensorGrid {
 public:
  // INVALID_ARGUMENT if `ranks` cannot form such a grid; the message names the nearest possible
  // numbers. `depth` is for 2.5D; the other modes take 1.
  static absl::StatusOr<TensorGrid> Make(TensorMode mode, int ranks, int depth = 1);

  TensorMode mode() const { return mode_; }
  int ranks() const { return mesh_.world_size(); }
  // Ranks along one side: P in 1D, q in 2D and 2.5D, d in 3D.
  int side() const { return side_; }
  // 1 except in 2.5D.
  int depth() const { return depth_; }
  // The group's own axes. In a mesh of the whole job they are the innermost axes.
  const Mesh& mesh() const { return mesh_; }

 private:
  TensorGrid(TensorMode mode, int side, int depth, Mesh mesh);

  TensorMode mode_;
  int side_;
  int depth_;
  Mesh mesh_;
};

struct LinearShape {
  size_t tokens = 0;
  size_t in = 0;
  size_t out = 0;
};

struct Range {
  size_t begin = 0;
  size_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Block {
  Range rows;
  Range columns;
  size_t elements() const { return rows.count * columns.count; }
  friend bool operator==(const Block&, const Block&) = default;
};

struct LinearBlocks {
  Block x, w, y;
  // The bias elements that this rank stores. All ranks together store each element at least once.
  Range bias;
};

// INVALID_ARGUMENT names the size that must be divisible, and the divisor.
absl::StatusOr<LinearBlocks> BlocksOf(const TensorGrid& grid, LinearRole role,
                                      const LinearShape& shape, int rank);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_GRID_H_
