#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/optimizers/came/came.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/came/came_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/adafactor/factor_passes.h"
#include "kernels/optimizers/adafactor/row_pieces.h"
#include "kernels/optimizers/came/came_rule.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(CameResidualRule)
GEMINID_DEFINE_RULE_LOOP(CameRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(CameResidualRule)
GEMINID_DEFINE_RULE_CALL(CameRule)

bool InRange(const CameOptions& o) {
  return o.learning_rate >= 0 && IsFraction(o.beta1) && IsFraction(o.beta2) &&
         IsFraction(o.beta3) && IsPositiveFloat(o.epsilon1) && IsPositiveFloat(o.epsilon2) &&
         IsPositiveFloat(o.clip_threshold) && o.weight_decay >= 0 && o.step >= 1;
}

// The scales of U and S follow those of R and C.
const float* ConfidenceScales(const FactorShape& shape, const float* scales) {
  return scales + shape.Count();
}

Status CheckPass(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                 size_t count, const void* factors) {
  const Status status = CheckCameOptions(options);
  return status == Status::kOk ? CheckFactorPass(shape, offset, count, factors) : status;
}

void ApplyConfident(const FactorShape& shape, uint64_t offset, const float* scales,
                    AdafactorCoefficients k, const ReadPass& pass,
                    const ParameterArrays& new_arrays) {
  const float* confidence = ConfidenceScales(shape, scales);
  ForEachRowPiece(shape, offset, pass.count, [&](const RowPiece& piece) {
    k.row_scale = RowScale(shape, scales, piece);
    const CameRule rule = {k, RowScale(shape, confidence, piece)};
    ReadPass part = PassOf(pass, piece, ColumnScales(shape, scales, piece));
    part.factor[1] = ColumnScales(shape, confidence, piece);
    UpdateElements(CallOf(rule), part, Advance(new_arrays, piece.begin));
  });
}

}  // namespace

HWY_NOINLINE Status MakeCoefficients(const CameOptions& o, const FactorShape& shape,
                                     double update_squares, AdafactorCoefficients* coefficients) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const double mean = update_squares / static_cast<double>(shape.Elements());
  const double excess = std::sqrt(mean) / o.clip_threshold;
  const AdafactorCoefficients k = {
      .grad_scale = static_cast<float>(o.grad_scale),
      .row_scale = 1.0F,
      .clip = static_cast<float>(excess <= 1.0 ? 1.0 : 1.0 / excess),
      .beta1 = static_cast<float>(o.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - o.beta1),
      .rate = static_cast<float>(o.learning_rate),
      .decay_rate = static_cast<float>(o.learning_rate * o.weight_decay),
  };
  if (!std::isfinite(excess) || !AllFinite({k.grad_scale, k.clip, k.rate, k.decay_rate})) {
    return Status::kInvalidParameter;
  }
  *coefficients = k;
  return Status::kOk;
}

Status CheckCameOptions(const CameOptions& options) {
  AdafactorCoefficients unused;
  return MakeCoefficients(options, FactorShape(), 0.0, &unused);
}

Status CameAddSquares(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                      const GradientArray& gradient, size_t count, double* sums,
                      double* column_space) {
  const ScopedFloatEnvironment environment;
  Status status = CheckPass(options, shape, offset, count, sums);
  if (status == Status::kOk) status = CheckColumnSpace(shape, column_space);
  if (status == Status::kOk) status = CheckGradient(gradient, count);
  if (status != Status::kOk) return status;
  AddFactorSquares(shape, offset, {.gradient = gradient, .count = count},
                   static_cast<float>(options.grad_scale), sums, column_space, nullptr);
  return Status::kOk;
}

Status CameFactors(const CameOptions& options, const FactorShape& shape, const double* sums,
                   const float* old_factors, float* new_factors, float* scales) {
  const ScopedFloatEnvironment environment;
  const Status status = CheckCameOptions(options);
  if (status != Status::kOk) return status;
  return AverageFactors(shape, options.beta2, options.epsilon1, sums, old_factors, new_factors,
                        scales);
}

Status CameAddUpdateSquares(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                            const float* scales, const GradientArray& gradient, size_t count,
                            double* update_squares) {
  const ScopedFloatEnvironment environment;
  if (update_squares == nullptr) return Status::kNullPointer;
  const Status status = CheckCameOptions(options);
  if (status != Status::kOk) return status;
  return AddFactoredUpdateSquares(static_cast<float>(options.grad_scale), shape, offset, scales,
                                  gradient, count, update_squares);
}

Status CameAddResidualSquares(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                              const float* scales, double update_squares,
                              const ConstParameterArrays& arrays, const GradientArray& gradient,
                              size_t count, double* sums, double* column_space) {
  const ScopedFloatEnvironment environment;
  AdafactorCoefficients k;
  Status status = MakeCoefficients(options, shape, update_squares, &k);
  if (status == Status::kOk) status = CheckPass(options, shape, offset, count, sums);
  if (status == Status::kOk) status = CheckColumnSpace(shape, column_space);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, scales);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, 1);
  if (status != Status::kOk) return status;
  const ReadPass pass = {.arrays = arrays, .gradient = gradient, .count = count};
  FactorSums factor_sums(shape, offset, count, sums, column_space);
  ForEachRowPiece(shape, offset, count, [&](const RowPiece& piece) {
    k.row_scale = RowScale(shape, scales, piece);
    const CameResidualRule rule = {k};
    MeasureElements(CallOf(rule), PassOf(pass, piece, ColumnScales(shape, scales, piece)),
                    factor_sums.At(piece));
  });
  return Status::kOk;
}

Status CameResidualFactors(const CameOptions& options, const FactorShape& shape, const double* sums,
                           const float* old_factors, float* new_factors, float* scales) {
  const ScopedFloatEnvironment environment;
  const Status status = CheckCameOptions(options);
  if (status != Status::kOk) return status;
  if (!shape.Factored()) return Status::kInvalidShape;
  if (old_factors == nullptr || new_factors == nullptr || scales == nullptr) {
    return Status::kNullPointer;
  }
  const uint64_t second = shape.Count();
  return AverageFactors(shape, options.beta3, options.epsilon2, sums, old_factors + second,
                        new_factors + second, scales + second);
}

Status CameApply(const CameOptions& options, const FactorShape& shape, uint64_t offset,
                 const float* scales, double update_squares, const ConstParameterArrays& old_arrays,
                 const GradientArray& gradient, size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  AdafactorCoefficients k;
  Status status = MakeCoefficients(options, shape, update_squares, &k);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, scales);
  if (status == Status::kOk) status = CheckStepArrays(old_arrays, gradient, count, 1, new_arrays);
  if (status != Status::kOk) return status;
  const ReadPass pass = {.arrays = old_arrays, .gradient = gradient, .count = count};
  if (shape.Factored()) {
    ApplyConfident(shape, offset, scales, k, pass, new_arrays);
  } else {
    ApplyFactored(shape, offset, scales, k, /*momentum=*/true, pass, new_arrays);
  }
  return Status::kOk;
}

Status CameStep(const CameOptions& options, const FactorShape& shape,
                const ConstParameterArrays& old_arrays, const float* old_factors,
                const GradientArray& gradient, const ParameterArrays& new_arrays,
                float* new_factors, double* sums, float* scales) {
  const ScopedFloatEnvironment environment;
  const uint64_t count = shape.Elements();
  double update_squares = 0.0;
  // All checks first: the factors are written before the parameters.
  Status status = CheckCameOptions(options);
  if (status == Status::kOk) {
    status = CheckFactorArrays(shape, old_factors, new_factors, sums,
                               shape.Count() + shape.ColumnSpace(), scales);
  }
  if (status == Status::kOk) status = CheckStepArrays(old_arrays, gradient, count, 1, new_arrays);
  if (status != Status::kOk) return status;
  std::fill_n(sums, shape.Count(), 0.0);
  status = CameAddSquares(options, shape, 0, gradient, count, sums, sums + shape.Count());
  if (status == Status::kOk) status = CheckSums(shape, sums, 0.0);
  if (status == Status::kOk) {
    status = CameFactors(options, shape, sums, old_factors, new_factors, scales);
  }
  if (status == Status::kOk) {
    status = CameAddUpdateSquares(options, shape, 0, scales, gradient, count, &update_squares);
  }
  if (status == Status::kOk && shape.Factored()) {
    std::fill_n(sums, shape.Count(), 0.0);
    status = CameAddResidualSquares(options, shape, 0, scales, update_squares, old_arrays, gradient,
                                    count, sums, sums + shape.Count());
    if (status == Status::kOk) {
      status = CameResidualFactors(options, shape, sums, old_factors, new_factors, scales);
    }
  }
  if (status != Status::kOk) return status;
  return CameApply(options, shape, 0, scales, update_squares, old_arrays, gradient, count,
                   new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
