#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/optimizers/adafactor/adafactor.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/adafactor/adafactor_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/adafactor/adafactor_rule.h"
#include "kernels/optimizers/adafactor/factor_passes.h"
#include "kernels/optimizers/adafactor/row_pieces.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(FactoredUpdateRule)
GEMINID_DEFINE_RULE_LOOP(AdafactorRule)
GEMINID_DEFINE_RULE_LOOP(AdafactorMomentumRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(FactoredUpdateRule)
GEMINID_DEFINE_RULE_CALL(AdafactorRule)
GEMINID_DEFINE_RULE_CALL(AdafactorMomentumRule)

bool InRange(const AdafactorOptions& o) {
  return o.learning_rate >= 0 && IsPositiveFloat(o.epsilon1) && o.epsilon2 >= 0 &&
         IsPositiveFloat(o.clip_threshold) && o.decay_exponent > 0 && IsFraction(o.beta1) &&
         o.weight_decay >= 0 && (o.relative_step || !o.warmup_init) && o.step >= 1 &&
         std::isfinite(o.decay_exponent);
}

double Rate(const AdafactorOptions& o, double weight_rms) {
  const auto step = static_cast<double>(o.step);
  double rate = o.learning_rate;
  if (o.relative_step) {
    rate *= std::min(o.warmup_init ? 1e-6 * step : 1e-2, 1.0 / std::sqrt(step));
  }
  if (o.scale_parameter) rate *= std::max(o.epsilon2, weight_rms);
  return rate;
}

double RootMean(double squares, const FactorShape& shape) {
  return std::sqrt(squares / static_cast<double>(shape.Elements()));
}

}  // namespace

HWY_NOINLINE Status MakeCoefficients(const AdafactorOptions& o, const FactorShape& shape,
                                     const AdafactorNorms& norms,
                                     AdafactorCoefficients* coefficients) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const double rate = Rate(o, RootMean(norms.weight_squares, shape));
  const double excess = RootMean(norms.update_squares, shape) / o.clip_threshold;
  const AdafactorCoefficients k = {
      .grad_scale = static_cast<float>(o.grad_scale),
      .row_scale = 1.0F,
      .clip = static_cast<float>(excess <= 1.0 ? 1.0 : 1.0 / excess),
      .beta1 = static_cast<float>(o.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - o.beta1),
      .rate = static_cast<float>(rate),
      .decay_rate = static_cast<float>(rate * o.weight_decay),
  };
  const bool sums_finite = std::isfinite(norms.weight_squares) && std::isfinite(excess);
  if (!sums_finite || !AllFinite({k.grad_scale, k.clip, k.rate, k.decay_rate})) {
    return Status::kInvalidParameter;
  }
  *coefficients = k;
  return Status::kOk;
}

Status CheckAdafactorOptions(const AdafactorOptions& options) {
  AdafactorCoefficients unused;
  return MakeCoefficients(options, FactorShape(), AdafactorNorms(), &unused);
}

Status AdafactorAddSquares(const AdafactorOptions& options, const FactorShape& shape,
                           uint64_t offset, const ConstParameterArrays& arrays,
                           const GradientArray& gradient, size_t count, double* sums,
                           double* column_space, AdafactorNorms* norms) {
  const ScopedFloatEnvironment environment;
  if (norms == nullptr) return Status::kNullPointer;
  Status status = CheckAdafactorOptions(options);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, sums);
  if (status == Status::kOk) status = CheckColumnSpace(shape, column_space);
  if (status == Status::kOk) status = CheckReadArrays(arrays, gradient, count, 0);
  if (status != Status::kOk) return status;
  AddFactorSquares(shape, offset, {.arrays = arrays, .gradient = gradient, .count = count},
                   static_cast<float>(options.grad_scale), sums, column_space,
                   &norms->weight_squares);
  return Status::kOk;
}

double AdafactorKept(const AdafactorOptions& options) {
  return 1.0 - std::pow(static_cast<double>(options.step), -options.decay_exponent);
}

Status AdafactorFactors(const AdafactorOptions& options, const FactorShape& shape,
                        const double* sums, const float* old_factors, float* new_factors,
                        float* scales) {
  const ScopedFloatEnvironment environment;
  const Status status = CheckAdafactorOptions(options);
  if (status != Status::kOk) return status;
  return AverageFactors(shape, AdafactorKept(options), options.epsilon1, sums, old_factors,
                        new_factors, scales);
}

Status AdafactorAddUpdateSquares(const AdafactorOptions& options, const FactorShape& shape,
                                 uint64_t offset, const float* scales,
                                 const GradientArray& gradient, size_t count,
                                 AdafactorNorms* norms) {
  const ScopedFloatEnvironment environment;
  if (norms == nullptr) return Status::kNullPointer;
  const Status status = CheckAdafactorOptions(options);
  if (status != Status::kOk) return status;
  return AddFactoredUpdateSquares(static_cast<float>(options.grad_scale), shape, offset, scales,
                                  gradient, count, &norms->update_squares);
}

Status AddFactoredUpdateSquares(float grad_scale, const FactorShape& shape, uint64_t offset,
                                const float* scales, const GradientArray& gradient, size_t count,
                                double* update_squares) {
  Status status = CheckFactorPass(shape, offset, count, scales);
  if (status == Status::kOk) status = CheckGradient(gradient, count);
  if (status != Status::kOk) return status;
  const ReadPass pass = {.gradient = gradient, .count = count};
  ForEachRowPiece(shape, offset, count, [&](const RowPiece& piece) {
    const FactoredUpdateRule rule = {grad_scale, RowScale(shape, scales, piece)};
    MeasureElements(CallOf(rule), PassOf(pass, piece, ColumnScales(shape, scales, piece)),
                    {.result = update_squares});
  });
  return Status::kOk;
}

void ApplyFactored(const FactorShape& shape, uint64_t offset, const float* scales,
                   AdafactorCoefficients k, bool momentum, const ReadPass& pass,
                   const ParameterArrays& new_arrays) {
  ForEachRowPiece(shape, offset, pass.count, [&](const RowPiece& piece) {
    k.row_scale = RowScale(shape, scales, piece);
    const AdafactorRule plain = {k};
    const AdafactorMomentumRule with_momentum = {k};
    UpdateElements(momentum ? CallOf(with_momentum) : CallOf(plain),
                   PassOf(pass, piece, ColumnScales(shape, scales, piece)),
                   Advance(new_arrays, piece.begin));
  });
}

Status AdafactorApply(const AdafactorOptions& options, const FactorShape& shape, uint64_t offset,
                      const float* scales, const AdafactorNorms& norms,
                      const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                      size_t count, const ParameterArrays& new_arrays) {
  const ScopedFloatEnvironment environment;
  AdafactorCoefficients k;
  const int states = AdafactorStateArrays(options);
  Status status = MakeCoefficients(options, shape, norms, &k);
  if (status == Status::kOk) status = CheckFactorPass(shape, offset, count, scales);
  if (status == Status::kOk) {
    status = CheckStepArrays(old_arrays, gradient, count, states, new_arrays);
  }
  if (status != Status::kOk) return status;
  ApplyFactored(shape, offset, scales, k, states != 0,
                {.arrays = old_arrays, .gradient = gradient, .count = count}, new_arrays);
  return Status::kOk;
}

Status AdafactorStep(const AdafactorOptions& options, const FactorShape& shape,
                     const ConstParameterArrays& old_arrays, const float* old_factors,
                     const GradientArray& gradient, const ParameterArrays& new_arrays,
                     float* new_factors, double* sums, float* scales) {
  const ScopedFloatEnvironment environment;
  const uint64_t count = shape.Elements();
  AdafactorNorms norms;
  // All checks first: the factors are written before the parameters.
  Status status = CheckAdafactorOptions(options);
  if (status == Status::kOk) {
    status = CheckFactorArrays(shape, old_factors, new_factors, sums,
                               shape.Count() + shape.ColumnSpace(), scales);
  }
  if (status == Status::kOk) {
    status =
        CheckStepArrays(old_arrays, gradient, count, AdafactorStateArrays(options), new_arrays);
  }
  if (status != Status::kOk) return status;
  std::fill_n(sums, shape.Count(), 0.0);
  status = AdafactorAddSquares(options, shape, 0, old_arrays, gradient, count, sums,
                               sums + shape.Count(), &norms);
  if (status == Status::kOk) status = CheckSums(shape, sums, norms.weight_squares);
  if (status == Status::kOk) {
    status = AdafactorFactors(options, shape, sums, old_factors, new_factors, scales);
  }
  if (status == Status::kOk) {
    status = AdafactorAddUpdateSquares(options, shape, 0, scales, gradient, count, &norms);
  }
  if (status != Status::kOk) return status;
  return AdafactorApply(options, shape, 0, scales, norms, old_arrays, gradient, count, new_arrays);
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
