#include "training/forecast/optimizer.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "client/zero/options/optimizer_options.h"

namespace geminid::forecast {
namespace {

constexpr double kUsualMomentum = 0.9;

}  // namespace

std::uint64_t Optimizer::tensor_state_bytes(std::uint64_t rows, std::uint64_t columns) const {
  constexpr std::uint64_t kVersions = 2;
  return kVersions *
         zero::TensorStateBytes(options, 1, kernels::FactorCount(options, {rows, columns}));
}

std::uint64_t Optimizer::device_scale_bytes(std::uint64_t rows, std::uint64_t columns) const {
  return kernels::FactorCount(options, {rows, columns}) * sizeof(float);
}

absl::StatusOr<Optimizer> FindOptimizer(const std::string& name, bool momentum) {
  const std::optional<kernels::OptimizerKind> kind = kernels::ParseOptimizerKind(name);
  if (!kind.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no optimizer '", name, "'; use one of ", kernels::OptimizerNames()));
  }
  Optimizer optimizer;
  optimizer.options.kind = *kind;
  if (!momentum) return optimizer;
  if (*kind == kernels::OptimizerKind::kSgd) {
    optimizer.options.sgd.momentum = kUsualMomentum;
  } else if (*kind == kernels::OptimizerKind::kAdafactor) {
    optimizer.options.adafactor.beta1 = kUsualMomentum;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("only sgd and adafactor have a choice of momentum; ", name,
                     " is the same with and "
                     "without, so leave it out"));
  }
  return optimizer;
}

}  // namespace geminid::forecast
