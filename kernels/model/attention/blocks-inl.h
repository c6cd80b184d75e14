// Copies between tensors of T and the fp32 blocks of attention, and the first half of both passes:
// the masked scores of a block.
#if defined(GEMINID_KERNELS_MODEL_ATTENTION_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_MODEL_ATTENTION_BLOCKS_INL_H_
#undef GEMINID_KERNELS_MODEL_ATTENTION_BLOCKS_INL_H_
#else
#define GEMINID_KERNELS_MODEL_ATTENTION_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernels/model/attention/layout.h"
#include "kernels/model/attention/tile_product-inl.h"
#include "kernels/runtime/simd/f32x16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

// The rows of one head of one batch entry.
template <typename T>
struct HeadRows {
  T* data;
  size_t token_stride;

  HWY_INLINE T* Row(size_t token) const { return data + token * token_stride; }
};

template <typename T>
HWY_INLINE HeadRows<T> SelectHead(const AttentionShape& shape, const HeadsView<T>& view,
                                  size_t batch, size_t head) {
  return {view.data + batch * shape.sequence * view.token_stride + head * shape.head_dim,
          view.token_stride};
}

// to[count', width] = scale * rows [first, first + count), with zeros for rows and columns that do
// not exist.
template <typename T>
HWY_NOINLINE void Unpack(const AttentionShape& shape, const HeadRows<const T>& from, size_t first,
                         size_t count, size_t width, float scale, float* to) {
  for (size_t r = 0; r < count; ++r) {
    const bool exists = first + r < shape.sequence;
    for (size_t i = 0; i < width; i += kWidth) {
      F32x16 v = Set(0.0F);
      if (exists) v = LoadN(from.Row(first + r) + i, shape.head_dim - i) * Set(scale);
      Store(v, to + r * width + i);
    }
  }
}

// Writes rows [first, first + kAttentionBlock) of `to` that exist, from a dense fp32 block.
template <typename T>
HWY_NOINLINE void Pack(const AttentionShape& shape, const float* from, size_t first, size_t width,
                       float scale, const HeadRows<T>& to) {
  for (size_t r = 0; r < kAttentionBlock && first + r < shape.sequence; ++r) {
    for (size_t i = 0; i < shape.head_dim; i += kWidth) {
      StoreN(Load(from + r * width + i) * Set(scale), to.Row(first + r) + i, shape.head_dim - i);
    }
  }
}

// Transposes every block [kAttentionBlock, width] of `from` to [width, kAttentionBlock].
inline HWY_NOINLINE void TransposeBlocks(const AttentionLayout& layout, const float* from,
                                         float* to) {
  for (size_t first = 0; first < layout.rows; first += kAttentionBlock) {
    const float* block = from + first * layout.width;
    float* out = to + first * layout.width;
    for (size_t r = 0; r < kAttentionBlock; ++r) {
      for (size_t i = 0; i < layout.width; ++i) {
        out[i * kAttentionBlock + r] = block[r * layout.width + i];
      }
    }
  }
}

// scores[rows,64] = left[rows,width] right_transposed[width,64].
inline HWY_NOINLINE void BlockScores(size_t width, const float* left, const float* right_transposed,
                                     float* scores, size_t rows = kAttentionBlock) {
  Product({.a = left,
           .a_row_stride = width,
           .a_col_stride = 1,
           .b = right_transposed,
           .b_stride = kAttentionBlock,
           .c = scores,
           .c_stride = kAttentionBlock,
           .m = rows,
           .n = kAttentionBlock,
           .k = width});
}

// Masks the keys after the query, in a block on the diagonal.
inline HWY_NOINLINE void MaskAboveDiagonal(float* scores) {
  for (size_t r = 0; r < kAttentionBlock; ++r) {
    for (size_t c = r + 1; c < kAttentionBlock; ++c) scores[r * kAttentionBlock + c] = kMasked;
  }
}

// Masks the keys beyond the sequence, in a block that begins with token `key`.
inline HWY_NOINLINE void MaskBeyond(size_t sequence, size_t key, float* scores) {
  for (size_t r = 0; r < kAttentionBlock; ++r) {
    for (size_t c = sequence - key; c < kAttentionBlock; ++c) {
      scores[r * kAttentionBlock + c] = kMasked;
    }
  }
}

// Masks the keys before the window, in a block whose first key is `ahead` tokens before its first
// query.
inline HWY_NOINLINE void MaskBeforeWindow(size_t window, size_t ahead, float* scores) {
  for (size_t r = 0; r < kAttentionBlock; ++r) {
    if (ahead + r < window) continue;
    const size_t behind = std::min(kAttentionBlock, ahead + r - window + 1);
    for (size_t c = 0; c < behind; ++c) scores[r * kAttentionBlock + c] = kMasked;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_BLOCKS_INL_H_
