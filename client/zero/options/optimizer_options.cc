#include "client/zero/options/optimizer_options.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/options/optimizer_ranges.h"

namespace geminid::zero {
namespace {

using kernels::OptimizerKind;

// Public structures and those of the kernels differ only in fields that each step sets.
void Fill(const AdamWOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kAdamW;
  to->adamw.beta1 = from.beta1;
  to->adamw.beta2 = from.beta2;
  to->adamw.epsilon = from.epsilon;
  to->adamw.weight_decay = from.weight_decay;
}

void Fill(const AdamOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kAdam;
  to->adamw.beta1 = from.beta1;
  to->adamw.beta2 = from.beta2;
  to->adamw.epsilon = from.epsilon;
  to->adamw.weight_decay = from.weight_decay;
}

void Fill(const LambOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kLamb;
  to->lamb.beta1 = from.beta1;
  to->lamb.beta2 = from.beta2;
  to->lamb.epsilon = from.epsilon;
  to->lamb.weight_decay = from.weight_decay;
  to->lamb.decoupled = from.decoupled;
  to->lamb.bias_correction = from.bias_correction;
  to->lamb.grad_averaging = from.grad_averaging;
  to->lamb.always_adapt = from.always_adapt;
  to->lamb.max_grad_norm = from.max_grad_norm;
}

void Fill(const LarsOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kLars;
  to->lars.momentum = from.momentum;
  to->lars.weight_decay = from.weight_decay;
  to->lars.trust_coefficient = from.trust_coefficient;
  to->lars.trust_limit = from.trust_limit;
  to->lars.epsilon = from.epsilon;
}

void Fill(const SgdOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kSgd;
  to->sgd.momentum = from.momentum;
  to->sgd.dampening = from.dampening;
  to->sgd.weight_decay = from.weight_decay;
  to->sgd.nesterov = from.nesterov;
  to->sgd.decay_after_momentum = from.decay_after_momentum;
}

void Fill(const AdagradOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kAdagrad;
  to->adagrad.rate_decay = from.rate_decay;
  to->adagrad.epsilon = from.epsilon;
  to->adagrad.weight_decay = from.weight_decay;
}

void Fill(const LionOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kLion;
  to->lion.beta1 = from.beta1;
  to->lion.beta2 = from.beta2;
  to->lion.weight_decay = from.weight_decay;
}

void Fill(const AdafactorOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kAdafactor;
  to->adafactor.epsilon1 = from.epsilon1;
  to->adafactor.epsilon2 = from.epsilon2;
  to->adafactor.clip_threshold = from.clip_threshold;
  to->adafactor.decay_exponent = from.decay_exponent;
  to->adafactor.beta1 = from.beta1;
  to->adafactor.weight_decay = from.weight_decay;
  to->adafactor.relative_step = from.relative_step;
  to->adafactor.warmup_init = from.warmup_init;
  to->adafactor.scale_parameter = from.scale_parameter;
}

void Fill(const CameOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kCame;
  to->came.beta1 = from.beta1;
  to->came.beta2 = from.beta2;
  to->came.beta3 = from.beta3;
  to->came.epsilon1 = from.epsilon1;
  to->came.epsilon2 = from.epsilon2;
  to->came.clip_threshold = from.clip_threshold;
  to->came.weight_decay = from.weight_decay;
}

void Fill(const MuonOptions& from, kernels::OptimizerOptions* to) {
  to->kind = OptimizerKind::kMuon;
  to->muon.momentum = from.momentum;
  to->muon.nesterov = from.nesterov;
  to->muon.rate =
      from.rate == MuonRate::kOriginal ? kernels::MuonRate::kOriginal : kernels::MuonRate::kAsAdamW;
  to->muon.weight_decay = from.weight_decay;
  to->muon.beta1 = from.beta1;
  to->muon.beta2 = from.beta2;
  to->muon.epsilon = from.epsilon;
}

}  // namespace

kernels::OptimizerOptions ToKernel(const Optimizer& optimizer) {
  kernels::OptimizerOptions options;
  std::visit([&](const auto& from) { Fill(from, &options); }, optimizer);
  return options;
}

uint64_t TensorStateBytes(const kernels::OptimizerOptions& options, uint64_t tensors,
                          uint64_t factors) {
  if (!kernels::NeedsSums(options.kind)) return 0;
  return kSumsPerTensor * tensors * sizeof(double) + factors * sizeof(float);
}

bool CountsUpdates(const kernels::OptimizerOptions& options) {
  switch (options.kind) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdafactor:
    case OptimizerKind::kMuon:
      return true;
    case OptimizerKind::kLamb:
      return options.lamb.bias_correction;
    case OptimizerKind::kSgd:  // with momentum, because the first gradient is not dampened
      return options.sgd.momentum > 0 && options.sgd.dampening != 0;
    case OptimizerKind::kAdagrad:
      return options.adagrad.rate_decay > 0;
    case OptimizerKind::kLars:
    case OptimizerKind::kLion:
    case OptimizerKind::kCame:
      return false;
  }
  return false;
}

absl::StatusOr<Optimizer> WithOwn(Optimizer optimizer, const Engine::GroupInput& group) {
  const int arrays = kernels::StateArrays(ToKernel(optimizer));
  const char* lacks = nullptr;
  std::visit(
      [&](auto& o) {
        const auto set = [&](const char* name, const std::optional<double>& from, double* to) {
          if (!from.has_value()) return;
          if (to == nullptr) lacks = name;
          if (to != nullptr) *to = *from;
        };
        double* beta1 = nullptr;
        double* beta2 = nullptr;
        double* epsilon = nullptr;
        if constexpr (requires { o.beta1; }) beta1 = &o.beta1;
        if constexpr (requires { o.momentum; }) beta1 = &o.momentum;
        if constexpr (requires { o.beta2; }) beta2 = &o.beta2;
        if constexpr (requires { o.epsilon; }) epsilon = &o.epsilon;
        set("beta1", group.beta1, beta1);
        set("beta2", group.beta2, beta2);
        set("epsilon", group.epsilon, epsilon);
      },
      optimizer);
  if (lacks != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(optimizer), " has no ", lacks, "; leave it out of Step's groups"));
  }
  GEMINID_RETURN_IF_ERROR(CheckOptimizer(optimizer));
  if (kernels::StateArrays(ToKernel(optimizer)) == arrays) return optimizer;
  return absl::InvalidArgumentError(
      absl::StrCat(Name(optimizer), " was created ", arrays == 0 ? "without" : "with",
                   " a first moment, whose beta1 is ", arrays == 0 ? "0" : "positive",
                   ": Step's groups cannot change that"));
}

absl::Status CheckStateType(const Optimizer& optimizer, DataType type) {
  if (type == DataType::kFloat32) return absl::OkStatus();
  if (type != DataType::kBFloat16) {
    const char* const name = Name(type);
    return absl::InvalidArgumentError(
        absl::StrCat("Options::state_type is ",
                     name == nullptr ? absl::StrCat(static_cast<int>(type)) : std::string(name),
                     "; the optimizer's state must be fp32 or bf16"));
  }
  if (kernels::StateArrays(ToKernel(optimizer)) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Options::state_type is bf16, but ", Name(optimizer),
                   " with these options has no state; leave the type fp32"));
}

bool NeedsSums(const Optimizer& optimizer) { return kernels::NeedsSums(ToKernel(optimizer).kind); }

absl::Status CheckOptimizer(const Optimizer& optimizer) {
  if (absl::Status ranges = CheckRanges(optimizer); !ranges.ok()) return ranges;
  if (kernels::CheckOptimizerOptions(ToKernel(optimizer)) == kernels::Status::kOk) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the hyperparameters of ", Name(optimizer),
                   " are so large that numbers derived from them are infinite in fp32; take usual "
                   "ones, see geminid/optimizer.h"));
}

}  // namespace geminid::zero
