#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/muon/muon.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/muon/muon_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/muon/muon_rule.h"
#include "kernels/optimizers/muon/newton_schulz.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/hyperparameters.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/pieces.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(MuonMomentumRule)
GEMINID_DEFINE_RULE_LOOP(MuonRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
namespace {

GEMINID_DEFINE_RULE_CALL(MuonMomentumRule)
GEMINID_DEFINE_RULE_CALL(MuonRule)

constexpr size_t kLineBytes = 64;
// From Liu et al.: the RMS of AdamW's updates is from 0.2 to 0.4.
constexpr double kRmsOfAdamW = 0.2;

bool IsShape(const MatrixShape& shape) {
  uint64_t of_one = 0, all = 0;
  return shape.matrices >= 1 && shape.rows >= 1 && shape.cols >= 1 &&
         !__builtin_mul_overflow(shape.rows, shape.cols, &of_one) &&
         !__builtin_mul_overflow(of_one, shape.matrices, &all);
}

// Parts of the workspace, in order, each at the start of a line. A null workspace: sizes alone.
class Parts {
 public:
  explicit Parts(std::byte* workspace) : workspace_(workspace) {}

  template <typename T>
  T* Take(uint64_t count) {
    std::byte* const at = workspace_ == nullptr ? nullptr : workspace_ + bytes_;
    bytes_ += (count * sizeof(T) + kLineBytes - 1) / kLineBytes * kLineBytes;
    return reinterpret_cast<T*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* const workspace_;
  size_t bytes_ = 0;
};

// The bytes of workspace for the products, and for all parts.
struct WorkspacePlan {
  size_t product_bytes = 0;
  size_t bytes = 0;
};

NewtonSchulzSpace SpaceIn(Parts* parts, const MatrixShape& shape, size_t product_bytes) {
  const uint64_t elements = shape.rows * shape.cols;
  const uint64_t side = std::min(shape.rows, shape.cols);
  NewtonSchulzSpace space;
  space.wide = parts->Take<float>(elements);
  space.x = parts->Take<BFloat16>(elements);
  space.gram = parts->Take<BFloat16>(side * side);
  space.square = parts->Take<float>(side * side);
  space.polynomial = parts->Take<BFloat16>(side * side);
  space.products = parts->Take<std::byte>(product_bytes);
  space.product_bytes = product_bytes;
  return space;
}

Status PlanWorkspace(const MatrixShape& shape, size_t threads, WorkspacePlan* plan) {
  if (!IsShape(shape)) return Status::kInvalidShape;
  const Status status =
      NewtonSchulzProductBytes(shape.rows, shape.cols, threads, &plan->product_bytes);
  if (status != Status::kOk) return status;
  Parts parts(nullptr);
  SpaceIn(&parts, shape, plan->product_bytes);
  plan->bytes = parts.bytes();
  return Status::kOk;
}

bool InRange(const MuonOptions& o) {
  return o.learning_rate >= 0 && IsFraction(o.momentum) && o.rate <= MuonRate::kOriginal &&
         o.weight_decay >= 0 && o.step >= 1;
}

struct Rules {
  MuonMomentumRule momentum;
  MuonRule update;
};

// Steps the matrix at the beginning of the arrays.
Status StepMatrix(const Rules& rules, const MatrixShape& shape, const ConstParameterArrays& from,
                  const GradientArray& gradient, const ParameterArrays& to,
                  const NewtonSchulzSpace& space, ThreadPool* pool) {
  const uint64_t count = shape.rows * shape.cols;
  ConstParameterArrays momentum = from;
  momentum.form = WeightForm::kFloat;
  momentum.master = space.wide;
  ParameterArrays new_momentum = to;
  new_momentum.form = WeightForm::kFloat;
  new_momentum.master = space.wide;
  RunInPieces(pool, count, [&](size_t begin, size_t end) {
    const ScopedFloatEnvironment environment;
    ReadPass pass = {.arrays = Advance(momentum, begin), .gradient = Advance(gradient, begin)};
    pass.count = end - begin;
    UpdateElements(CallOf(rules.momentum), pass, Advance(new_momentum, begin));
  });
  const Status status = NewtonSchulz(shape.rows, shape.cols, space, pool);
  if (status != Status::kOk) return status;
  RunInPieces(pool, count, [&](size_t begin, size_t end) {
    const ScopedFloatEnvironment environment;
    ReadPass pass = {.arrays = Advance(from, begin), .gradient = GradientArray(space.x + begin)};
    pass.count = end - begin;
    UpdateElements(CallOf(rules.update), pass, Advance(to, begin));
  });
  return Status::kOk;
}

}  // namespace

HWY_NOINLINE Status MakeRules(const MuonOptions& o, const MatrixShape& shape,
                              MuonMomentumRule* momentum, MuonRule* rule) {
  if (!InRange(o)) return Status::kInvalidParameter;
  const double ahead = o.nesterov ? o.momentum : 1.0;
  const MuonMomentumRule of_momentum = {
      .grad_scale = static_cast<float>(o.grad_scale),
      .momentum = static_cast<float>(o.momentum),
      .one_minus_momentum = static_cast<float>(1.0 - o.momentum),
      .of_momentum = static_cast<float>(ahead),
      .of_gradient = static_cast<float>(1.0 - ahead),
  };
  const MuonRule made = {
      .rate = static_cast<float>(o.learning_rate * MuonScale(o.rate, shape)),
      .decay_rate = static_cast<float>(o.learning_rate * o.weight_decay),
  };
  if (!IsGradScale(of_momentum.grad_scale) || !AllFinite({made.rate, made.decay_rate})) {
    return Status::kInvalidParameter;
  }
  *momentum = of_momentum;
  *rule = made;
  return Status::kOk;
}

Status CheckMuonOptions(const MuonOptions& options) {
  Rules unused;
  const Status status = MakeRules(options, {}, &unused.momentum, &unused.update);
  return status == Status::kOk ? CheckAdamWOptions(AdamWOf(options)) : status;
}

AdamWOptions AdamWOf(const MuonOptions& options) {
  AdamWOptions made;
  made.learning_rate = options.learning_rate;
  made.beta1 = options.beta1;
  made.beta2 = options.beta2;
  made.epsilon = options.epsilon;
  made.weight_decay = options.weight_decay;
  made.step = options.step;
  made.grad_scale = options.grad_scale;
  return made;
}

double MuonScale(MuonRate rate, const MatrixShape& shape) {
  const auto rows = static_cast<double>(shape.rows);
  const auto cols = static_cast<double>(shape.cols);
  if (rate == MuonRate::kOriginal) return std::sqrt(std::max(1.0, rows / cols));
  return kRmsOfAdamW * std::sqrt(std::max(rows, cols));
}

Status MuonWorkspaceBytes(const MatrixShape& shape, size_t threads, size_t* bytes) {
  WorkspacePlan plan;
  const Status status = PlanWorkspace(shape, threads, &plan);
  if (status == Status::kOk) *bytes = plan.bytes;
  return status;
}

Status MuonStep(const MuonOptions& options, const MatrixShape& shape,
                const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                const ParameterArrays& new_arrays, void* workspace, size_t workspace_bytes,
                ThreadPool* pool) {
  Rules rules;
  WorkspacePlan plan;
  Status status = PlanWorkspace(shape, ThreadsOf(pool), &plan);
  if (status == Status::kOk) status = MakeRules(options, shape, &rules.momentum, &rules.update);
  if (status == Status::kOk) {
    status = CheckStepArrays(old_arrays, gradient, shape.Elements(), 1, new_arrays);
  }
  if (status == Status::kOk) {
    status = CheckBuffer({workspace, workspace_bytes, 1, kLineBytes});
  }
  if (status != Status::kOk) return status;
  if (workspace_bytes < plan.bytes) return Status::kSizeOverflow;
  Parts parts(static_cast<std::byte*>(workspace));
  const NewtonSchulzSpace space = SpaceIn(&parts, shape, plan.product_bytes);
  for (uint64_t i = 0; i < shape.matrices && status == Status::kOk; ++i) {
    const size_t at = i * shape.rows * shape.cols;
    status = StepMatrix(rules, shape, Advance(old_arrays, at), Advance(gradient, at),
                        Advance(new_arrays, at), space, pool);
  }
  return status;
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
