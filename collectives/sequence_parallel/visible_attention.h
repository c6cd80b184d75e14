// Attention of queries to keys that all come before them: no mask.
#ifndef GEMINID_COLLECTIVES_SEQUENCE_PARALLEL_VISIBLE_ATTENTION_H_
#define GEMINID_COLLECTIVES_SEQUENCE_PARALLEL_VISIBLE_ATTENTION_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/common/workspace.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::collectives {

// `rows` rows of one head, `stride` elements apart.
template <class T>
struct HeadRows {
  T* data = nullptr;
  size_t stride = 0;
  size_t rows = 0;

  HeadRows From(size_t row, size_t count) const { return {data + row * stride, stride, count}; }
};

// One head at a time, queries in tiles, in fp32. Keeps room for a tile's scores, and in the
// backward pass for as many again. One thread at a time. INTERNAL: a kernel refused its arguments.
class VisibleAttention {
 public:
  // `pool` may be null and outlives this.
  VisibleAttention(size_t head_dim, float scale, kernels::ThreadPool* pool)
      : head_dim_(head_dim), scale_(scale), pool_(pool) {}

  // Merges the attention to these keys into `out` and `lse` [rows of q], the attention to others:
  // two softmaxes weighted by the sums that they were divided by, of which lse is the logarithm.
  absl::Status Merge(const HeadRows<const float>& q, const HeadRows<const float>& k,
                     const HeadRows<const float>& v, const HeadRows<float>& out, float* lse);

  // What the backward pass reads of the queries: lse and out are those of all their keys.
  struct Saved {
    HeadRows<const float> q, dout;
    const float* lse = nullptr;
    const float* delta = nullptr;  // the sum of dout * out, by row
  };
  // Adds what these keys contribute.
  absl::Status AddGradients(const Saved& saved, const HeadRows<const float>& k,
                            const HeadRows<const float>& v, const HeadRows<float>& dq,
                            const HeadRows<float>& dk, const HeadRows<float>& dv);

 private:
  absl::Status Multiply(const kernels::MatmulShape& shape, const float* a, const float* b,
                        float* c);
  // c [rows of a, rows of b] = a b^T.
  absl::Status Scores(const HeadRows<const float>& a, const HeadRows<const float>& b, float* c);
  absl::Status MergeTile(const HeadRows<const float>& q, const HeadRows<const float>& k,
                         const HeadRows<const float>& v, const HeadRows<float>& out, float* lse);
  absl::Status AddGradientsOfTile(const Saved& saved, const HeadRows<const float>& k,
                                  const HeadRows<const float>& v, const HeadRows<float>& dq,
                                  const HeadRows<float>& dk, const HeadRows<float>& dv);

  size_t head_dim_;
  float scale_;
  kernels::ThreadPool* pool_;
  std::vector<float> scores_;   // [tile, keys]
  std::vector<float> dscores_;  // [tile, keys]
  std::vector<float> tile_;     // [tile, head_dim]
  kernels::Workspace workspace_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SEQUENCE_PARALLEL_VISIBLE_ATTENTION_H_
