#include "training/nn/parallel/tensor/parallel_linear.h"

#include "base/status_macros.h"
#include "training/nn/parallel/tensor/block_size.h"
#include "training/nn/parallel/tensor/linear_1d_sequence.h"
#include "training/nn/parallel/tensor/linear_2d.h"
#include "training/nn/parallel/tensor/linear_3d.h"

namespace geminid::collectives {

template <typename T>
absl::StatusOr<std::unique_ptr<ParallelLinear<T>>> ParallelLinear<T>::Make(
    TensorGroups& groups, const LinearOptions& options, LinearScratch& scratch) {
  const TensorGrid& grid = groups.grid();
  GEMINID_ASSIGN_OR_RETURN(auto blocks, BlocksOf(grid, options.role, options.shape, groups.rank()));
  switch (grid.mode()) {
    case TensorMode::k1D:
      return absl::InvalidArgumentError("in 1D the blocks of a layer are a layer of their own");
    case TensorMode::k1DSequence:
      return MakeLinear1DSequence<T>(groups, options, blocks, scratch);
    case TensorMode::k2D:
    case TensorMode::k25D:
      return MakeLinear2D<T>(groups, options, blocks, scratch);
    case TensorMode::k3D:
      return MakeLinear3D<T>(groups, options, blocks, scratch);
  }
  return absl::InternalError("the tensor mode is unknown");
}

template <typename T>
absl::Status ParallelLinear<T>::Forward(std::span<const T> x, std::span<const T> w,
                                        std::span<const float> bias, std::span<float> y) {
  const size_t bias_elements = options_.bias ? blocks_.bias.count : 0;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("W", w.size(), blocks_.w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the bias", bias.size(), bias_elements));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), blocks_.y.elements()));
  return TellIfRefused(groups_, DoForward(x.data(), w.data(), bias.data(), y.data()));
}

template <typename T>
absl::Status ParallelLinear<T>::Backward(std::span<const T> x, std::span<const T> w,
                                         std::span<const T> dy, const Gradients& gradients) {
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

template class ParallelLinear<float>;
template class ParallelLinear<kernels::BFloat16>;

}  // namespace geminid::collectives
