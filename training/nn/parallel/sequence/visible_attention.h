// Attention of queries to keys that all come before them: no mask.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_VISIBLE_ATTENTION_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_VISIBLE_ATTENTION_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/memory.h"

namespace geminid::collectives {

// `rows` rows of one head, `stride` elements apart.
template <class T>
struct HeadRows {
  T* data = nullptr;
  size_t stride = 0;
  size_t rows = 0;

  HeadRows From(size_t row, size_t count) const { return {data + row * stride, stride, count}; }
};

// One head at a time, queries in tiles of kTileRows, in fp32. One thread at a time. INTERNAL: a
// kernel refused its arguments.
class VisibleAttention {
 public:
  // `pool` may be null and outlives this.
  VisibleAttention(size_t head_dim, float scale, kernels::ThreadPool* pool)
      : head_dim_(head_dim), scale_(scale), pool_(pool) {}

  static constexpr size_t kTileRows = 64;

  // What calls work in, for so many keys at most: in fp32 a tile's scores, and what they give of
  // the values, or in the backward pass the gradients of the scores. A product takes what its
  // kernel asks for of the memory.
  struct Room {
    Memory* memory = nullptr;   // outlives it
    std::span<float> scores{};  // [tile, keys]
    std::span<float> beside{};  // [tile, head_dim], or [tile, keys]
  };
  static size_t ElementsToMerge(size_t keys, size_t head_dim) {
    return kTileRows * (keys + head_dim);
  }
  static size_t ElementsForGradients(size_t keys) { return 2 * kTileRows * keys; }
  // In so many elements of either.
  static Room RoomIn(Memory& memory, size_t keys, std::span<float> elements) {
    return {&memory, elements.first(kTileRows * keys), elements.subspan(kTileRows * keys)};
  }

  // Merges the attention to these keys into `out` and `lse` [rows of q], the attention to others:
  // two softmaxes weighted by the sums that they were divided by, of which lse is the logarithm.
  absl::Status Merge(const Room& room, const HeadRows<const float>& q,
                     const HeadRows<const float>& k, const HeadRows<const float>& v,
                     const HeadRows<float>& out, float* lse) const;

  // What the backward pass reads of the queries: lse and out are those of all their keys.
  struct Saved {
    HeadRows<const float> q, dout;
    const float* lse = nullptr;
    const float* delta = nullptr;  // the sum of dout * out, by row
  };
  // Adds what these keys contribute.
  absl::Status AddGradients(const Room& room, const Saved& saved, const HeadRows<const float>& k,
                            const HeadRows<const float>& v, const HeadRows<float>& dq,
                            const HeadRows<float>& dk, const HeadRows<float>& dv) const;

 private:
  absl::Status Multiply(const Room& room, const kernels::MatmulShape& shape, const float* a,
                        const float* b, float* c) const;
  // c [rows of a, rows of b] = a b^T.
  absl::Status Scores(const Room& room, const HeadRows<const float>& a,
                      const HeadRows<const float>& b, float* c) const;
  absl::Status MergeTile(const Room& room, const HeadRows<const float>& q,
                         const HeadRows<const float>& k, const HeadRows<const float>& v,
                         const HeadRows<float>& out, float* lse) const;
  absl::Status AddGradientsOfTile(const Room& room, const Saved& saved,
                                  const HeadRows<const float>& k, const HeadRows<const float>& v,
                                  const HeadRows<float>& dq, const HeadRows<float>& dk,
                                  const HeadRows<float>& dv) const;

  size_t head_dim_;
  float scale_;
  kernels::ThreadPool* pool_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_VISIBLE_ATTENTION_H_
