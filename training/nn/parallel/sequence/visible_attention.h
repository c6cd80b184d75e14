// Attention of queries to keys that are all visible, so no mask is needed.
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

// Computes one head at a time, queries in tiles of kTileRows, in fp32. One thread at a time.
// INTERNAL: a kernel refused its arguments.
class VisibleAttention {
 public:
  // `pool` may be null; it outlives this object.
  VisibleAttention(size_t head_dim, float scale, kernels::ThreadPool* pool)
      : head_dim_(head_dim), scale_(scale), pool_(pool) {}

  static constexpr size_t kTileRows = 64;

  // The buffers of a call, for at most so many keys, in fp32. `scores` has a tile's scores.
  // `beside` has the scores times the values, or in the backward pass the gradients of the scores.
  // The workspace of matrix products comes from `memory`.
  struct Room {
    Memory* memory = nullptr;   // outlives the call
    std::span<float> scores{};  // [tile, keys]
    std::span<float> beside{};  // [tile, head_dim], or [tile, keys] in the backward pass
  };
  static size_t ElementsToMerge(size_t keys, size_t head_dim) {
    return kTileRows * (keys + head_dim);
  }
  static size_t ElementsForGradients(size_t keys) { return 2 * kTileRows * keys; }
  // Divides `elements` into the two buffers.
  static Room RoomIn(Memory& memory, size_t keys, std::span<float> elements) {
    return {&memory, elements.first(kTileRows * keys), elements.subspan(kTileRows * keys)};
  }

  // Merges the attention to these keys into `out` and `lse` [rows of q], which hold the attention
  // to other keys. The two softmaxes are weighted by the sums of their exponentials; lse is the
  // logarithm of such a sum.
  absl::Status Merge(const Room& room, const HeadRows<const float>& q,
                     const HeadRows<const float>& k, const HeadRows<const float>& v,
                     const HeadRows<float>& out, float* lse) const;

  // The values of the queries that the backward pass reads. lse and delta are over all their keys.
  struct Saved {
    HeadRows<const float> q, dout;
    const float* lse = nullptr;
    const float* delta = nullptr;  // the sum of dout * out, for each row
  };
  // Adds the contributions of these keys to the gradients.
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
