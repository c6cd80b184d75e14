#ifndef GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_H_
#define GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_H_

#include <cstddef>

// How the sums of blocks are added, on the host and on a GPU (block_tree.cuh), with the same bits:
// kTreeBlocks consecutive ones as a tree, so that no long chain of additions is left to one thread,
// and the trees' sums in order. Block i of a tree is added to i - 128 first, then the lower half of
// these in the same way, down to one; blocks that are missing at the end count as zeros, which
// changes nothing, because no sum of squares is -0.
namespace geminid::kernels {

inline constexpr size_t kTreeBlocks = 256;

// A running total of blocks' sums.
class BlockTree {
 public:
  explicit BlockTree(double total) : total_(total) {}

  void Add(double block_sum) {
    sums_[size_++] = block_sum;
    if (size_ == kTreeBlocks) Fold();
  }

  // With all that was added. Nothing is added afterwards.
  double Total() {
    if (size_ != 0) Fold();
    return total_;
  }

 private:
  void Fold() {
    for (size_t half = kTreeBlocks / 2; half != 0; half /= 2) {
      for (size_t i = half; i < size_; ++i) sums_[i - half] += sums_[i];
      size_ = size_ < half ? size_ : half;
    }
    total_ += sums_[0];
    size_ = 0;
  }

  double total_;
  size_t size_ = 0;
  double sums_[kTreeBlocks];  // the first size_ are set
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_H_
