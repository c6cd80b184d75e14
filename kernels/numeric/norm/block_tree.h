#ifndef GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_H_
#define GEMINID_KERNELS_NUMERIC_NORM_BLOCK_TREE_H_

#include <cstddef>

// How the sums of blocks are added, with the same bits on the host and on a GPU (block_tree.cuh).
// kTreeBlocks consecutive sums are added as a tree, so that no thread has a long chain of
// additions; then the trees' sums in order. In a tree, sum i + 128 is added to sum i; then the
// lower half is folded in the same way, down to one sum. Missing blocks at the end count as zeros,
// which changes nothing, because no sum of squares is -0.
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

  // The total of all sums added. No Add may follow.
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
