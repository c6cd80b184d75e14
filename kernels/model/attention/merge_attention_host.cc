#include <algorithm>
#include <cmath>

#include "kernels/model/attention/merge_attention.h"
#include "kernels/model/attention/merge_checks.h"

namespace geminid::kernels {

Status MergeAttention(const MergeShape& shape, const float* other, const float* other_lse,
                      float* out, float* lse) {
  const Status status = CheckMerge(shape, other, other_lse, out, lse);
  if (status != Status::kOk) return status;
  for (size_t token = 0; token < shape.tokens; ++token) {
    for (size_t head = 0; head < shape.heads; ++head) {
      const size_t row = head * shape.tokens + token;
      const double a = lse[row], b = other_lse[row];
      const double merged = std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
      const auto of_out = static_cast<float>(std::exp(a - merged));
      const auto of_other = static_cast<float>(std::exp(b - merged));
      const size_t first = (token * shape.heads + head) * shape.head_dim;
      for (size_t i = first; i < first + shape.head_dim; ++i) {
        out[i] = out[i] * of_out + other[i] * of_other;
      }
      lse[row] = static_cast<float>(merged);
    }
  }
  return Status::kOk;
}

}  // namespace geminid::kernels
