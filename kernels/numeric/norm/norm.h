#ifndef GEMINID_KERNELS_NUMERIC_NORM_NORM_H_
#define GEMINID_KERNELS_NUMERIC_NORM_NORM_H_

#include <cmath>
#include <cstddef>

#include "kernels/numeric/norm/block_tree.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

// Sum of squares and non-finite check in one pass, for gradient clipping by global norm.
namespace geminid::kernels {

// Arrays are summed in blocks of this many elements, counted from the start of each call.
inline constexpr size_t kNormBlock = 4096;
// Within a block, element i is added to lane i modulo this, in order of i.
inline constexpr size_t kNormLanes = 16;

// Elements of one tree of blocks.
inline constexpr size_t kNormTree = kNormBlock * kTreeBlocks;

// A running sum. Squares of finite fp32 values are exact in float64 and no array in memory can
// make their sum overflow, so the sum is finite exactly if every value added was.
struct SquareSum {
  double sum = 0.0;

  bool AllFinite() const { return std::isfinite(sum); }
};

// Adds the squares of `count` values to *total.
//
// The order of the additions is fixed. Each block has 16 float64 lanes starting from 0, folded as
// lane[i] += lane[i + 8], then 4, 2, 1. The sums of kTreeBlocks blocks are added as a tree
// (block_tree.h), and the trees to total->sum in order. So the bits are the same on every
// instruction set, and for one call as for several that cut the array at multiples of kNormTree.
// Threads: give each a fixed part of the data and its own SquareSum, and add these in a fixed
// order. A NaN result is always the same quiet NaN.
//
// Relative error at most (kNormBlock / kNormLanes + 4 + 8 + number of trees) x 2^-53. Element
// alignment suffices; any thread, no allocation, never blocks.
Status AddSquares(const BFloat16* values, size_t count, SquareSum* total);
Status AddSquares(const float* values, size_t count, SquareSum* total);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_NORM_NORM_H_
