// The sizes of attention's blocks and workspace. Internal to attention.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_LAYOUT_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_LAYOUT_H_

#include <cstddef>

#include "kernels/model/attention/attention.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// Queries and keys per block. A block of scores and the operands of one product (3 x 16 KiB at
// head_dim 64) stay in the L2 cache.
inline constexpr size_t kAttentionBlock = 64;

// The first key of the first block of keys that a block of queries sees. `query` is the block's
// first query.
constexpr size_t FirstKeyOf(size_t window, size_t query) {
  if (window == 0 || query < window) return 0;
  return (query - window + 1) / kAttentionBlock * kAttentionBlock;
}

// The end of the last block of keys that a block of queries sees. `query` is the block's first
// query.
constexpr size_t EndOfKeys(const AttentionShape& shape, size_t query) {
  return shape.causal ? query + kAttentionBlock : RoundUpTo(shape.sequence, kAttentionBlock);
}

// The workspace as fp32 arrays, in elements. One key/value head is unpacked at a time.
struct AttentionLayout {
  size_t rows;   // sequence in whole blocks
  size_t width;  // head_dim in whole vectors

  explicit AttentionLayout(const AttentionShape& shape)
      : rows(RoundUpTo(shape.sequence, kAttentionBlock)), width(RoundUpTo(shape.head_dim, 16)) {}

  size_t head() const { return rows * width; }
  size_t block() const { return kAttentionBlock * width; }
  static constexpr size_t scores() { return kAttentionBlock * kAttentionBlock; }

  // The backward pass needs the most: K, K^T, V^T, dK, dV; Q, dO, dQ of a block; P and dS of a
  // block; lse and D of a block.
  size_t floats() const { return 5 * head() + 3 * block() + 2 * scores() + 2 * kAttentionBlock; }
};

// Hands out consecutive arrays of a workspace.
class FloatArena {
 public:
  explicit FloatArena(void* workspace) : next_(static_cast<float*>(workspace)) {}

  float* Take(size_t count) {
    float* taken = next_;
    next_ += count;
    return taken;
  }

 private:
  float* next_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_LAYOUT_H_
