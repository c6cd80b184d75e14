#include "client/zero/optimizer_options.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace geminid::zero {
namespace {

using kernels::OptimizerKind;

// What differs between the public structures and those of the kernels is only what a step sets.
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

bool IsElementwise(const Optimizer& optimizer) {
  return !kernels::NeedsSums(ToKernel(optimizer).kind);
}

absl::Status CheckOptimizer(const Optimizer& optimizer) {
  if (kernels::CheckOptimizerOptions(ToKernel(optimizer)) == kernels::Status::kOk) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a hyperparameter of ", Name(optimizer),
      " is out of its range: betas, momentum and decays are from 0 to below 1, epsilons positive "
      "where they keep 0 / 0 out, all finite; geminid/optimizer.h says the rest"));
}

}  // namespace geminid::zero
