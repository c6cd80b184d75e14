#include "training/nn/parallel/tensor/parallel_linear.h"

#include "base/status_macros.h"
#include "training/nn/parallel/tensor/block_size.h"
#include "training/nn/parallel/tensor/linear_1d.h"
#include "training/nn/parallel/tensor/linear_2d.h"
#include "training/nn/parallel/tensor/linear_3d.h"

namespace geminid::collectives {
absl::StatusOr<std::unique_ptr<ParallelLinear>> ParallelLinear::Make(TensorGroups& groups,
                                                                     const LinearOptions& options,
                                                                     LinearScratch& scratch) {
  const TensorGrid& grid = groups.grid();
  auto blocks = BlocksOf(grid, options.role, options.shape, groups.rank());
  if (!blocks.ok()) return blocks.status();
  switch (grid.mode()) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      return MakeLinear1D(groups, options, *blocks, scratch);
    case TensorMode::k2D:
    case TensorMode::k25D:
      return MakeLinear2D(groups, options, *blocks, scratch);
    case TensorMode::k3D:
      return MakeLinear3D(groups, options, *blocks, scratch);
  }
  return absl::InternalError("a tensor mode that is none");
}

absl::Status ParallelLinear::Forward(std::span<const float> x, std::span<const float> w,
                                     std::span<const float> bias, std::span<float> y) {
  const size_t bias_elements = options_.bias ? blocks_.bias.count : 0;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("W", w.size(), blocks_.w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the bias", bias.size(), bias_elements));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), blocks_.y.elements()));
  return TellIfRefused(groups_, DoForward(x.data(), w.data(), bias.data(), y.data()));
}

absl::Status ParallelLinear::Backward(std::span<const float> x, std::span<const float> w,
                                      std::span<const float> dy, const Gradients& gradients) {
  const size_t bias_elements = options_.bias ? blocks_.bias.count : 0;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("W", w.size(), blocks_.w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dY", dy.size(), blocks_.y.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dX", gradients.x.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dW", gradients.w.size(), blocks_.w.elements()));
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("the bias's gradient", gradients.bias.size(), bias_elements));
  return TellIfRefused(groups_, DoBackward(x.data(), w.data(), dy.data(), gradients.x.data(),
                                           gradients.w.data(), gradients.bias.data()));
}

}  // namespace geminid::collectives
