#include "kernels/optimizers/sharded_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/numeric/stochastic_rounding/stochastic_rounding_rule.h"
#include "kernels/optimizers/adafactor/adafactor_rule.h"
#include "kernels/optimizers/adam/adam.h"
#include "kernels/optimizers/came/came_rule.h"
#include "kernels/optimizers/kind_options.h"
#include "kernels/optimizers/lamb/lamb_rule.h"
#include "kernels/optimizers/lars/lars_rule.h"
#include "kernels/optimizers/muon/muon_rule.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"

namespace geminid::kernels {
namespace {

constexpr size_t kSumsPerTensor = 2;

bool AllFinite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

bool Finite(double x) { return std::isfinite(x) && x >= 0; }

bool SaneShape(const FactorShape& shape) {
  uint64_t elements;
  return shape.rows >= 1 && shape.cols >= 1 &&
         !__builtin_mul_overflow(shape.rows, shape.cols, &elements);
}

// Adds the norms of LAMB or LARS.
Status AddNorms(const OptimizerOptions& o, const Segment& s, double* two) {
  if (o.kind == OptimizerKind::kLamb) {
    LambNorms norms = {two[0], two[1]};
    const Status status = LambAddNorms(o.lamb, s.arrays, s.gradient, s.count, &norms);
    two[0] = norms.weight_squares;
    two[1] = norms.update_squares;
    return status;
  }
  if (o.kind == OptimizerKind::kLars) {
    LarsNorms norms = {two[0], two[1]};
    const Status status = LarsAddNorms(o.lars, s.arrays, s.gradient, s.count, &norms);
    two[0] = norms.weight_squares;
    two[1] = norms.gradient_squares;
    return status;
  }
  return Status::kUnsupported;
}

}  // namespace

ShardedStep::ShardedStep(const OptimizerOptions& options, std::vector<TensorOptions> tensors)
    : options_(options), tensors_(std::move(tensors)), places_(tensors_.size()) {
  status_ = CheckOptimizerOptions(options_);
  uint64_t sums = kSumsPerTensor * tensors_.size();
  uint64_t column_space = 0;
  for (size_t t = 0; t < tensors_.size() && status_ == Status::kOk; ++t) {
    const TensorOptions& tensor = tensors_[t];
    status_ = CheckTensor(tensor);
    if (status_ != Status::kOk) break;
    places_[t] = {factor_total_, sums};
    const uint64_t factors = tensor.frozen ? 0 : FactorCount(options_, tensor.shape);
    factor_total_ += factors;
    if (factors == 0) continue;
    sums += tensor.shape.Count();
    column_space = std::max(column_space, tensor.shape.ColumnSpace());
  }
  if (status_ != Status::kOk) return;
  sums_.resize(sums);
  column_space_.resize(column_space);
  tensor_sums_.resize(kSumsPerTensor * tensors_.size());
  scales_.resize(factor_total_);
}

Status ShardedStep::CheckTensor(const TensorOptions& tensor) const {
  if (!SaneShape(tensor.shape)) return Status::kInvalidShape;
  if (!Finite(tensor.learning_rate_scale)) return Status::kInvalidParameter;
  if (tensor.matrix_rows != 0 && tensor.shape.rows % tensor.matrix_rows != 0) {
    return Status::kInvalidShape;
  }
  return CheckOptimizerOptions(OptionsOf(tensor));
}

void ShardedStep::SetTensor(size_t tensor, const TensorOptions& options) {
  const FactorShape shape = tensors_[tensor].shape;
  const uint64_t matrix_rows = tensors_[tensor].matrix_rows;
  tensors_[tensor] = options;
  tensors_[tensor].shape = shape;
  tensors_[tensor].matrix_rows = matrix_rows;
}

__attribute__((noinline)) OptimizerOptions ShardedStep::OptionsOf(
    const TensorOptions& tensor) const {
  OptimizerOptions options = options_;
  VisitOptions(options, [&](auto& o) {
    o.learning_rate = scalars_.learning_rate * tensor.learning_rate_scale;
    if (tensor.weight_decay) o.weight_decay = *tensor.weight_decay;
    if constexpr (requires { o.beta1; }) o.beta1 = tensor.beta1.value_or(o.beta1);
    if constexpr (requires { o.momentum; }) o.momentum = tensor.beta1.value_or(o.momentum);
    if constexpr (requires { o.beta2; }) o.beta2 = tensor.beta2.value_or(o.beta2);
    if constexpr (requires { o.epsilon; }) o.epsilon = tensor.epsilon.value_or(o.epsilon);
    o.step = tensor.step > 0 ? tensor.step : scalars_.step;
    o.grad_scale = scalars_.grad_scale;
  });
  options.lamb.gradient_norm = scalars_.gradient_norm;
  return options;
}

bool ShardedStep::Trains(const Segment& segment) const {
  return segment.tensor != kNoTensor && !tensors_[segment.tensor].frozen;
}

Status ShardedStep::CheckSegment(const Segment& segment) const {
  if (segment.tensor == kNoTensor) return Status::kOk;
  if (segment.tensor >= tensors_.size()) return Status::kInvalidShape;
  const uint64_t elements = tensors_[segment.tensor].shape.Elements();
  const bool inside = segment.offset <= elements && segment.count <= elements - segment.offset;
  if (!inside) return Status::kInvalidShape;
  if (!Trains(segment)) return Status::kOk;
  return CheckReadArrays(segment.arrays, segment.gradient, segment.count, StateArraysOf(segment));
}

MatrixShape ShardedStep::MatricesOf(const TensorOptions& tensor) const {
  return {tensor.shape.rows / tensor.matrix_rows, tensor.matrix_rows, tensor.shape.cols};
}

// Between tensors: the state arrays that are not null, at most those of the optimizer.
int ShardedStep::StateArraysOf(const Segment& segment) const {
  if (segment.tensor != kNoTensor) {
    return tensors_[segment.tensor].matrix_rows == 0 ? StateArrays(options_)
                                                     : MatrixStateArrays(options_);
  }
  const ConstParameterArrays& a = segment.arrays;
  int arrays = 0;
  while (arrays < StateArrays(options_) &&
         (a.state[arrays] != nullptr || a.small_state[arrays] != nullptr)) {
    ++arrays;
  }
  return arrays;
}

// The error that Apply would return for any tensor: it must not fail once a step is committed.
Status ShardedStep::CheckRules() const {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    if (tensors_[t].frozen) continue;
    const OptimizerOptions o = OptionsOf(tensors_[t]);
    const double first = tensor_sums_[kSumsPerTensor * t];
    const double second = tensor_sums_[kSumsPerTensor * t + 1];
    Status status = CheckOptimizerOptions(o);
    LambRule lamb;
    LarsRule lars;
    AdafactorCoefficients factored;
    MuonMomentumRule momentum;
    MuonRule muon;
    if (status != Status::kOk) return status;
    if (o.kind == OptimizerKind::kLamb) status = MakeRule(o.lamb, {first, second}, &lamb);
    if (o.kind == OptimizerKind::kLars) status = MakeRule(o.lars, {first, second}, &lars);
    if (o.kind == OptimizerKind::kAdafactor) {
      status = MakeCoefficients(o.adafactor, tensors_[t].shape, {first, second}, &factored);
    }
    if (o.kind == OptimizerKind::kCame) {
      status = MakeCoefficients(o.came, tensors_[t].shape, second, &factored);
    }
    if (o.kind == OptimizerKind::kMuon && tensors_[t].matrix_rows != 0) {
      status = MakeRules(o.muon, MatricesOf(tensors_[t]), &momentum, &muon);
    }
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status ShardedStep::CheckSegments(std::span<const Segment> segments) const {
  for (const Segment& segment : segments) {
    if (const Status status = CheckSegment(segment); status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status ShardedStep::SumOverRanks(SumPass pass, std::span<const Segment> segments,
                                 const ReduceSum& reduce, const StepElsewhere& elsewhere,
                                 Status status) {
  const bool factors = pass != SumPass::kUpdates;
  const std::span<double> sums(sums_.data(), factors ? sums_.size() : tensor_sums_.size());
  std::fill(sums.begin(), sums.end(), 0.0);
  if (status == Status::kOk) status = CheckSegments(segments);
  const bool here = !elsewhere.add_sums;
  if (status == Status::kOk && !here) status = elsewhere.add_sums(pass, segments, sums);
  for (size_t i = 0; i < segments.size() && status == Status::kOk && here; ++i) {
    status = AddSums(pass, segments[i], sums.data());
  }
  // The other ranks wait for this one's sums: they must fail with it.
  if (status != Status::kOk) {
    std::fill(sums.begin(), sums.end(), std::numeric_limits<double>::quiet_NaN());
  }
  if (!reduce || !reduce(sums)) return status != Status::kOk ? status : Status::kCallbackFailed;
  if (status != Status::kOk) return status;
  return AllFinite(sums) ? Status::kOk : Status::kInvalidParameter;
}

Status ShardedStep::AddSums(SumPass pass, const Segment& s, double* sums) {
  const ScopedFloatEnvironment environment;
  const std::optional<OptimizerOptions> o = OptionsFor(s);
  if (!o.has_value()) return CheckSegment(s);
  if (pass != SumPass::kFirst && !has_scales_) return Status::kUnsupported;
  switch (pass) {
    case SumPass::kFirst:
      return AddFirstSums(*o, s, sums);
    case SumPass::kUpdates:
      return AddUpdateSquares(*o, s, sums);
    case SumPass::kResiduals:
      return AddResidualSquares(*o, s, sums);
  }
  return Status::kUnsupported;
}

Status ShardedStep::AddFirstSums(const OptimizerOptions& o, const Segment& s, double* sums) {
  const FactorShape& shape = tensors_[s.tensor].shape;
  double* const two = sums + kSumsPerTensor * s.tensor;
  double* const factor_sums = sums + places_[s.tensor].sums;
  if (o.kind == OptimizerKind::kAdafactor) {
    AdafactorNorms norms = {.weight_squares = two[0]};
    const Status status = AdafactorAddSquares(o.adafactor, shape, s.offset, s.arrays, s.gradient,
                                              s.count, factor_sums, column_space_.data(), &norms);
    two[0] = norms.weight_squares;
    return status;
  }
  if (o.kind == OptimizerKind::kCame) {
    return CameAddSquares(o.came, shape, s.offset, s.gradient, s.count, factor_sums,
                          column_space_.data());
  }
  return AddNorms(o, s, two);
}

Status ShardedStep::AddUpdateSquares(const OptimizerOptions& o, const Segment& s, double* sums) {
  const FactorShape& shape = tensors_[s.tensor].shape;
  double* const squares = sums + kSumsPerTensor * s.tensor + 1;
  const float* scales = scales_.data() + places_[s.tensor].factors;
  if (o.kind == OptimizerKind::kCame) {
    return CameAddUpdateSquares(o.came, shape, s.offset, scales, s.gradient, s.count, squares);
  }
  if (o.kind != OptimizerKind::kAdafactor) return Status::kUnsupported;
  AdafactorNorms norms = {.update_squares = *squares};
  const Status status =
      AdafactorAddUpdateSquares(o.adafactor, shape, s.offset, scales, s.gradient, s.count, &norms);
  *squares = norms.update_squares;
  return status;
}

Status ShardedStep::AddResidualSquares(const OptimizerOptions& o, const Segment& s, double* sums) {
  const FactorShape& shape = tensors_[s.tensor].shape;
  if (o.kind != OptimizerKind::kCame) return Status::kUnsupported;
  if (!shape.Factored()) return Status::kOk;
  const Place& place = places_[s.tensor];
  return CameAddResidualSquares(o.came, shape, s.offset, scales_.data() + place.factors,
                                tensor_sums_[kSumsPerTensor * s.tensor + 1], s.arrays, s.gradient,
                                s.count, sums + place.sums, column_space_.data());
}

Status ShardedStep::MakeFactors(SumPass pass, std::span<const double> all_sums,
                                const float* old_factors, float* new_factors) {
  const ScopedFloatEnvironment environment;
  Status status = Status::kOk;
  for (size_t t = 0; t < tensors_.size() && status == Status::kOk; ++t) {
    if (tensors_[t].frozen) continue;
    const OptimizerOptions o = OptionsOf(tensors_[t]);
    const FactorShape& shape = tensors_[t].shape;
    const uint64_t at = places_[t].factors;
    const double* const sums = all_sums.data() + places_[t].sums;
    const float* const old_of_it = old_factors + at;
    float* const new_of_it = new_factors + at;
    float* const scales = scales_.data() + at;
    if (o.kind == OptimizerKind::kAdafactor) {
      status = AdafactorFactors(o.adafactor, shape, sums, old_of_it, new_of_it, scales);
    } else if (pass == SumPass::kFirst) {
      status = CameFactors(o.came, shape, sums, old_of_it, new_of_it, scales);
    } else if (shape.Factored()) {
      status = CameResidualFactors(o.came, shape, sums, old_of_it, new_of_it, scales);
    }
  }
  has_scales_ = status == Status::kOk;
  return status;
}

// Makes factors by `elsewhere`, if that has make_factors, or else here.
Status ShardedStep::MakeFactorsThere(SumPass pass, const float* old_factors, float* new_factors,
                                     const StepElsewhere& elsewhere) {
  if (elsewhere.make_factors) return elsewhere.make_factors(pass, sums_);
  return MakeFactors(pass, sums_, old_factors, new_factors);
}

Status ShardedStep::PrepareFactored(std::span<const Segment> segments, const float* old_factors,
                                    const ReduceSum& reduce, float* new_factors,
                                    const StepElsewhere& elsewhere) {
  const Status made = MakeFactorsThere(SumPass::kFirst, old_factors, new_factors, elsewhere);
  Status status = SumOverRanks(SumPass::kUpdates, segments, reduce, elsewhere, made);
  if (status != Status::kOk) return status;
  for (size_t i = 1; i < tensor_sums_.size(); i += kSumsPerTensor) tensor_sums_[i] = sums_[i];
  if (options_.kind != OptimizerKind::kCame) return Status::kOk;
  status = SumOverRanks(SumPass::kResiduals, segments, reduce, elsewhere, Status::kOk);
  if (status != Status::kOk) return status;
  return MakeFactorsThere(SumPass::kResiduals, old_factors, new_factors, elsewhere);
}

Status ShardedStep::Prepare(const StepScalars& scalars, std::span<const Segment> segments,
                            const float* old_factors, const ReduceSum& reduce, float* new_factors,
                            const StepElsewhere& elsewhere) {
  const ScopedFloatEnvironment environment;
  ready_ = has_scales_ = false;
  device_scales_ = nullptr;
  if (status_ != Status::kOk) return status_;
  scalars_ = scalars;
  std::fill(tensor_sums_.begin(), tensor_sums_.end(), 0.0);
  Status status = CheckRules();
  const bool factors_here = !elsewhere.make_factors;
  if (status == Status::kOk && factors_here) {
    status = CheckBuffer(Buffer::Of(old_factors, factor_total_));
  }
  if (status == Status::kOk && factors_here) {
    status = CheckBuffer(Buffer::Of(new_factors, factor_total_));
  }
  // The factors of tensors frozen for this step stay.
  if (status == Status::kOk && factors_here && old_factors != new_factors) {
    std::copy_n(old_factors, factor_total_, new_factors);
  }
  if (status == Status::kOk && NeedsSums(options_.kind)) {
    const bool factored =
        options_.kind == OptimizerKind::kAdafactor || options_.kind == OptimizerKind::kCame;
    status = SumOverRanks(SumPass::kFirst, segments, reduce, elsewhere, Status::kOk);
    std::copy_n(sums_.begin(), tensor_sums_.size(), tensor_sums_.begin());
    if (status == Status::kOk && factored) {
      status = PrepareFactored(segments, old_factors, reduce, new_factors, elsewhere);
    }
    if (status == Status::kOk) status = CheckRules();
  }
  if (status == Status::kOk) status = CheckSegments(segments);
  ready_ = status == Status::kOk;
  return status;
}

Status ShardedStep::Restore(const StepScalars& scalars, std::span<const double> tensor_sums,
                            const float* new_factors) {
  const ScopedFloatEnvironment environment;
  ready_ = has_scales_ = false;
  device_scales_ = nullptr;
  if (status_ != Status::kOk) return status_;
  if (tensor_sums.size() != tensor_sums_.size()) return Status::kInvalidShape;
  Status status = CheckBuffer(Buffer::Of(new_factors, factor_total_));
  scalars_ = scalars;
  std::copy(tensor_sums.begin(), tensor_sums.end(), tensor_sums_.begin());
  for (size_t t = 0; t < tensors_.size() && factor_total_ != 0 && status == Status::kOk; ++t) {
    const FactorShape& shape = tensors_[t].shape;
    if (tensors_[t].frozen) continue;
    const uint64_t end = places_[t].factors + FactorCount(options_, shape);
    for (uint64_t at = places_[t].factors; at < end && status == Status::kOk; at += shape.Count()) {
      status = ScalesOfFactors(shape, new_factors + at, scales_.data() + at);
    }
  }
  if (status == Status::kOk) status = CheckRules();
  ready_ = has_scales_ = status == Status::kOk;
  return status;
}

std::optional<OptimizerOptions> ShardedStep::OptionsFor(size_t tensor) const {
  if (tensor >= tensors_.size() || tensors_[tensor].frozen) return std::nullopt;
  const ScopedFloatEnvironment environment;
  return OptionsOf(tensors_[tensor]);
}

std::optional<OptimizerOptions> ShardedStep::OptionsFor(const Segment& s) const {
  if (CheckSegment(s) != Status::kOk || !Trains(s)) return std::nullopt;
  const ScopedFloatEnvironment environment;
  return OptionsOf(tensors_[s.tensor]);
}

bool ShardedStep::Copies(const Segment& s) const {
  return ready_ && CheckSegment(s) == Status::kOk && !Trains(s);
}

ParameterArrays ShardedStep::WithRounding(const Segment& s, ParameterArrays new_arrays) const {
  const TensorOptions& tensor = tensors_[s.tensor];
  const uint64_t step = tensor.step > 0 ? tensor.step : scalars_.step;
  new_arrays.rounding = {RoundingSeed(tensor.rounding_id, step), s.offset};
  return new_arrays;
}

Status ShardedStep::Apply(const Segment& s, const ParameterArrays& arrays) const {
  const ScopedFloatEnvironment environment;
  if (!ready_) return Status::kInvalidParameter;
  if (const Status status = CheckSegment(s); status != Status::kOk) return status;
  if (!Trains(s)) return CopyParameters(s.arrays, s.count, StateArraysOf(s), arrays);
  const ParameterArrays new_arrays = WithRounding(s, arrays);
  if (factor_total_ > 0 && !has_scales_) return Status::kUnsupported;
  const FactorShape& shape = tensors_[s.tensor].shape;
  const OptimizerOptions o = OptionsOf(tensors_[s.tensor]);
  const double first = tensor_sums_[kSumsPerTensor * s.tensor];
  const double second = tensor_sums_[kSumsPerTensor * s.tensor + 1];
  const float* scales = scales_.data() + places_[s.tensor].factors;
  switch (o.kind) {
    case OptimizerKind::kAdamW:
      return AdamWStep(o.adamw, s.arrays, s.gradient, s.count, new_arrays);
    case OptimizerKind::kAdam:
      return AdamStep(o.adamw, s.arrays, s.gradient, s.count, new_arrays);
    case OptimizerKind::kLamb:
      return LambApply(o.lamb, {first, second}, s.arrays, s.gradient, s.count, new_arrays);
    case OptimizerKind::kLars:
      return LarsApply(o.lars, {first, second}, s.arrays, s.gradient, s.count, new_arrays);
    case OptimizerKind::kSgd:
      return SgdStep(o.sgd, s.arrays, s.gradient, s.count, new_arrays);
    case OptimizerKind::kAdagrad:
      return AdagradStep(o.adagrad, s.arrays, s.gradient, s.count, new_arrays);
    case OptimizerKind::kLion:
      return LionStep(o.lion, s.arrays, s.gradient, s.count, new_arrays);
    case OptimizerKind::kAdafactor:
      return AdafactorApply(o.adafactor, shape, s.offset, scales, {first, second}, s.arrays,
                            s.gradient, s.count, new_arrays);
    case OptimizerKind::kCame:
      return CameApply(o.came, shape, s.offset, scales, second, s.arrays, s.gradient, s.count,
                       new_arrays);
    case OptimizerKind::kMuon:
      if (OfMatrices(s)) return Status::kUnsupported;
      return AdamWStep(AdamWOf(o.muon), s.arrays, s.gradient, s.count, new_arrays);
  }
  return Status::kUnsupported;
}

bool ShardedStep::OfMatrices(const Segment& s) const {
  return options_.kind == OptimizerKind::kMuon && Trains(s) && tensors_[s.tensor].matrix_rows != 0;
}

Status ShardedStep::MatrixWorkspaceBytes(size_t threads, size_t* bytes) const {
  *bytes = 0;
  if (options_.kind != OptimizerKind::kMuon) return Status::kOk;
  for (const TensorOptions& tensor : tensors_) {
    if (tensor.frozen || tensor.matrix_rows == 0) continue;
    size_t needed = 0;
    const Status status = MuonWorkspaceBytes(MatricesOf(tensor), threads, &needed);
    if (status != Status::kOk) return status;
    *bytes = std::max(*bytes, needed);
  }
  return Status::kOk;
}

Status ShardedStep::ApplyMatrices(const Segment& s, const ParameterArrays& arrays,
                                  ThreadPool* pool) const {
  const ScopedFloatEnvironment environment;
  if (!ready_) return Status::kInvalidParameter;
  if (const Status status = CheckSegment(s); status != Status::kOk) return status;
  if (!OfMatrices(s)) return Status::kUnsupported;
  const TensorOptions& tensor = tensors_[s.tensor];
  if (s.count != tensor.shape.Elements()) return Status::kInvalidShape;
  return MuonStep(OptionsOf(tensor).muon, MatricesOf(tensor), s.arrays, s.gradient,
                  WithRounding(s, arrays), matrix_workspace_.data(), matrix_workspace_.size(),
                  pool);
}

}  // namespace geminid::kernels
