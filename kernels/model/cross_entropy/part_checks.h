// Argument checks of the cross-entropy of parts of rows, except those of the targets. Internal to
// it.
#ifndef GEMINID_KERNELS_MODEL_CROSS_ENTROPY_PART_CHECKS_H_
#define GEMINID_KERNELS_MODEL_CROSS_ENTROPY_PART_CHECKS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/cross_entropy/cross_entropy_part.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// Checks the shape and the logits.
inline Status CheckLogitsPart(const CrossEntropyPart& part, const float* logits, Buffer* buffer) {
  if (part.row_stride < part.columns) return Status::kInvalidShape;
  size_t count = 0;
  const Status status = CheckedProduct(part.tokens, part.row_stride, &count);
  if (status != Status::kOk) return status;
  *buffer = Buffer::Of(logits, count);
  return CheckBuffer(*buffer);
}

inline Status CheckCrossEntropyPartMax(const CrossEntropyPart& part, const float* logits,
                                       const float* max) {
  Buffer in = {};
  const Status status = CheckLogitsPart(part, logits, &in);
  return status == Status::kOk ? CheckBuffers({in}, {Buffer::Of(max, part.tokens)}) : status;
}

inline Status CheckCrossEntropyPartSums(const CrossEntropyPart& part, const float* logits,
                                        const int32_t* targets, const float* max, const float* sums,
                                        const float* at_target) {
  Buffer in = {};
  const Status status = CheckLogitsPart(part, logits, &in);
  if (status != Status::kOk) return status;
  return CheckBuffers({in, Buffer::Of(targets, part.tokens), Buffer::Of(max, part.tokens)},
                      {Buffer::Of(sums, part.tokens), Buffer::Of(at_target, part.tokens)});
}

inline Status CheckCrossEntropyPartGradient(const CrossEntropyPart& part, const float* logits,
                                            const int32_t* targets, const float* max,
                                            const float* sums, float grad_scale,
                                            const float* dlogits) {
  Buffer in = {};
  Status status = CheckLogitsPart(part, logits, &in);
  if (status != Status::kOk) return status;
  if (!std::isfinite(grad_scale)) return Status::kInvalidParameter;
  const Buffer out = Buffer::Of(dlogits, in.count);
  status = CheckInPlace(out, {in});
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(targets, part.tokens), Buffer::Of(max, part.tokens),
                       Buffer::Of(sums, part.tokens)},
                      {out});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_CROSS_ENTROPY_PART_CHECKS_H_
