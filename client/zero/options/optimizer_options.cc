#include "client/zero/options/optimizer_options.h"

#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/options/hyperparameters.h"
#include "client/zero/options/optimizer_ranges.h"
#include "kernels/optimizers/kind_options.h"

namespace geminid::zero {
namespace {

using kernels::OptimizerKind;

// Public structures and those of the kernels differ only in fields that each step sets.
template <typename From, typename To>
void Fill(const From& from, To* to) {
#define GEMINID_COPY(name) \
  if constexpr (requires { from.name, to->name; }) to->name = from.name;
  GEMINID_HYPERPARAMETERS(GEMINID_COPY)
#undef GEMINID_COPY
  if constexpr (requires { from.rate, to->rate; }) {
    to->rate = from.rate == MuonRate::kOriginal ? kernels::MuonRate::kOriginal
                                                : kernels::MuonRate::kAsAdamW;
  }
}

}  // namespace

kernels::OptimizerOptions ToKernel(const Optimizer& optimizer) {
  static_assert(std::size(kernels::kAllOptimizerKinds) == std::variant_size_v<Optimizer>);
  kernels::OptimizerOptions options;
  options.kind = kernels::kAllOptimizerKinds[optimizer.index()];
  std::visit(
      [&](const auto& from) { kernels::VisitOptions(options, [&](auto& to) { Fill(from, &to); }); },
      optimizer);
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
