// Argument checks of attention. Internal to attention.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_CHECKS_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_CHECKS_H_

#include <cmath>
#include <cstddef>

#include "kernels/model/attention/attention.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

inline Status CheckAttentionShape(const AttentionShape& s) {
  if (s.heads == 0 || s.kv_heads == 0 || s.heads % s.kv_heads != 0) return Status::kInvalidShape;
  if (s.head_dim == 0 || s.head_dim > kAttentionHeadDimMax) return Status::kInvalidShape;
  if (s.first_query > 0 && s.first_query >= s.sequence) return Status::kInvalidShape;
  if (!s.causal && (s.first_query > 0 || s.window > 0)) return Status::kInvalidShape;
  if (!std::isfinite(s.scale) || s.scale <= 0) return Status::kInvalidParameter;
  // 2^40 tokens keep every product of dimensions below 2^64.
  constexpr size_t kDimensionMax = size_t{1} << 40;
  size_t rows = 0;
  Status status = CheckedProduct(s.batch, s.sequence, &rows);
  if (status == Status::kOk) status = CheckedProduct(rows, s.heads, &rows);
  if (status != Status::kOk) return status;
  return rows > kDimensionMax || s.sequence > kDimensionMax ? Status::kSizeOverflow : Status::kOk;
}

// Turns views into buffers and stores the first stride that is too short or too long. Views into
// one fused activation interleave, so their buffers seem to overlap. The caller lists such outputs
// as one buffer.
class HeadsBuffers {
 public:
  explicit HeadsBuffers(const AttentionShape& shape) : shape_(shape) {}

  template <typename T>
  Buffer Queries(const HeadsView<T>& view) {
    return Of(view, shape_.heads, shape_.queries());
  }
  template <typename T>
  Buffer Keys(const HeadsView<T>& view) {
    return Of(view, shape_.kv_heads, shape_.sequence);
  }
  Buffer Lse(const float* lse) const {
    return Buffer::Of(lse, shape_.batch * shape_.heads * shape_.queries());
  }
  Status status() const { return status_; }

 private:
  template <typename T>
  Buffer Of(const HeadsView<T>& view, size_t heads, size_t rows) {
    const size_t width = heads * shape_.head_dim;
    const size_t tokens = shape_.batch * rows;
    size_t count = 0;
    if (view.token_stride < width) status_ = Status::kInvalidShape;
    if (CheckedProduct(tokens, view.token_stride, &count) != Status::kOk) {
      status_ = Status::kSizeOverflow;
    }
    if (status_ != Status::kOk || tokens == 0) return Buffer::Of(view.data, 0);
    return Buffer::Of(view.data, count - (view.token_stride - width));
  }

  AttentionShape shape_;
  Status status_ = Status::kOk;
};

template <typename T>
Status CheckAttentionForward(const AttentionShape& shape, const HeadsView<const T>& q,
                             const HeadsView<const T>& k, const HeadsView<const T>& v,
                             const HeadsView<T>& out, const float* lse) {
  Status status = CheckAttentionShape(shape);
  if (status != Status::kOk) return status;
  HeadsBuffers buffers(shape);
  status = CheckBuffers({buffers.Queries(q), buffers.Keys(k), buffers.Keys(v)},
                        {buffers.Queries(out), buffers.Lse(lse)});
  return buffers.status() != Status::kOk ? buffers.status() : status;
}

template <typename T>
Status CheckAttentionBackward(const AttentionShape& shape, const AttentionSaved<T>& saved,
                              const HeadsView<T>& dq, const HeadsView<T>& dk,
                              const HeadsView<T>& dv) {
  Status status = CheckAttentionShape(shape);
  if (status != Status::kOk) return status;
  if (shape.first_query != 0) return Status::kInvalidShape;
  HeadsBuffers buffers(shape);
  const auto inputs = {buffers.Queries(saved.q),    buffers.Keys(saved.k),
                       buffers.Keys(saved.v),       buffers.Queries(saved.out),
                       buffers.Queries(saved.dout), buffers.Lse(saved.lse)};
  // The three outputs may interleave in one fused gradient, so each is checked against the inputs
  // only.
  for (const Buffer& output : {buffers.Queries(dq), buffers.Keys(dk), buffers.Keys(dv)}) {
    if (buffers.status() != Status::kOk) return buffers.status();
    status = CheckBuffers(inputs, {output});
    if (status != Status::kOk) return status;
  }
  if (dq.data == dk.data || dq.data == dv.data || dk.data == dv.data) return Status::kOverlap;
  return Status::kOk;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_CHECKS_H_
