#include "kernels/model/cross_entropy/cross_entropy_part.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/cross_entropy/cross_entropy_part_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/cross_entropy/part_checks.h"
#include "kernels/model/cross_entropy/rows-inl.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"

#ifndef GEMINID_KERNELS_CROSS_ENTROPY_PART_COLUMN_
#define GEMINID_KERNELS_CROSS_ENTROPY_PART_COLUMN_
namespace geminid::kernels {

// The target's column in the part; `columns` or more if it is elsewhere (wraps if before it).
inline size_t TargetColumn(const CrossEntropyPart& part, int32_t target) {
  if (target == kIgnoredTarget) return part.columns;
  return static_cast<size_t>(target) - part.first_column;
}

}  // namespace geminid::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

void PartMax(const CrossEntropyPart& part, const float* logits, float* max) {
  for (size_t t = 0; t < part.tokens; ++t) {
    max[t] = RowMax(logits + t * part.row_stride, part.columns);
  }
}

void PartSums(const CrossEntropyPart& part, const float* logits, const int32_t* targets,
              const float* max, float* sums, float* at_target) {
  for (size_t t = 0; t < part.tokens; ++t) {
    const float* row = logits + t * part.row_stride;
    const size_t column = TargetColumn(part, targets[t]);
    sums[t] = static_cast<float>(RowSumExp(row, part.columns, max[t]));
    at_target[t] = column < part.columns ? row[column] : 0.0F;
  }
}

void PartGradient(const CrossEntropyPart& part, const float* logits, const int32_t* targets,
                  const float* max, const float* sums, float grad_scale, float* dlogits) {
  for (size_t t = 0; t < part.tokens; ++t) {
    float* out = dlogits + t * part.row_stride;
    if (targets[t] == kIgnoredTarget) {
      WriteZeros(out, part.columns);
    } else {
      RowGradient(logits + t * part.row_stride, part.columns, max[t], double{sums[t]},
                  TargetColumn(part, targets[t]), grad_scale, out);
    }
    WriteZeros(out + part.columns, part.row_stride - part.columns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

Status CrossEntropyPartMax(const CrossEntropyPart& part, const float* logits, float* max) {
  const Status status = CheckCrossEntropyPartMax(part, logits, max);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartMax)(part, logits, max);
  return Status::kOk;
}

Status CrossEntropyPartSums(const CrossEntropyPart& part, const float* logits,
                            const int32_t* targets, const float* max, float* sums,
                            float* at_target) {
  const Status status = CheckCrossEntropyPartSums(part, logits, targets, max, sums, at_target);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartSums)(part, logits, targets, max, sums, at_target);
  return Status::kOk;
}

Status CrossEntropyPartGradient(const CrossEntropyPart& part, const float* logits,
                                const int32_t* targets, const float* max, const float* sums,
                                float grad_scale, float* dlogits) {
  const Status status =
      CheckCrossEntropyPartGradient(part, logits, targets, max, sums, grad_scale, dlogits);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PartGradient)(part, logits, targets, max, sums, grad_scale, dlogits);
  return Status::kOk;
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
