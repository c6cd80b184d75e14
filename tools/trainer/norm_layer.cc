#include "tools/trainer/norm_layer.h"

#include <algorithm>

#include "base/status_macros.h"
#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/rms_norm.h"

namespace geminid::trainer {

template <typename T>
absl::StatusOr<NormLayer<T>> NormLayer<T>::Create(const Resources& resources,
                                                  const HalfContext& context,
                                                  const NormPlace& place, size_t rows) {
  const size_t cols = context.config->hidden;
  NormLayer layer;
  layer.resources_ = &resources;
  layer.place_ = place;
  layer.rows_ = rows;
  layer.cols_ = cols;
  layer.epsilon_ = static_cast<float>(context.config->norm_epsilon);
  GEMINID_ASSIGN_OR_RETURN(layer.statistics_,
                           Scratch<float>::Allocate(resources, rows * (place.shift ? 2 : 1)));
  GEMINID_ASSIGN_OR_RETURN(layer.gain_, Scratch<T>::Allocate(resources, cols));
  return layer;
}

template <typename T>
absl::Status NormLayer<T>::Forward(const ParameterUse& use, const T* x, T* y) {
  const T* gain = WeightOf<T>(use, place_.gain);
  std::copy_n(gain, cols_, gain_.data());
  const T* shift = place_.shift ? WeightOf<T>(use, *place_.shift) : nullptr;
  return ForRows(*resources_, rows_, cols_, [&](size_t first, size_t count) {
    const size_t at = first * cols_;
    float* rstd = statistics_.data() + first;
    if (shift == nullptr) {
      return FromKernel(
          kernels::RmsNormForward<T>({.rows = count, .cols = cols_, .epsilon = epsilon_}, x + at,
                                     gain, y + at, rstd),
          "RmsNormForward");
    }
    return FromKernel(
        kernels::LayerNormForward<T>({.rows = count, .cols = cols_, .epsilon = epsilon_}, x + at,
                                     gain, shift, y + at, rstd + rows_, rstd),
        "LayerNormForward");
  });
}

template <typename T>
absl::Status NormLayer<T>::Backward(ParameterUse& use, const T* dy, const T* x, const T* residual,
                                    T* dx) {
  const float* rstd = statistics_.data();
  if (!place_.shift) {
    const kernels::RmsNormShape shape = {.rows = rows_, .cols = cols_, .epsilon = epsilon_};
    const size_t bytes = kernels::RmsNormWorkspaceBytes(shape);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(*resources_, bytes));
    const kernels::RmsNormBackwardArgs<T> args = {.dy = dy,
                                                  .x = x,
                                                  .gamma = gain_.data(),
                                                  .rstd = rstd,
                                                  .residual = residual,
                                                  .dx = dx,
                                                  .dgamma = GradientOf<T>(use, place_.gain)};
    return FromKernel(kernels::RmsNormBackward<T>(shape, args, scratch.data(), bytes),
                      "RmsNormBackward");
  }
  const kernels::LayerNormShape shape = {.rows = rows_, .cols = cols_, .epsilon = epsilon_};
  const size_t bytes = kernels::LayerNormWorkspaceBytes(shape);
  GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(*resources_, bytes));
  T* gain = GradientOf<T>(use, place_.gain);
  T* shift = GradientOf<T>(use, *place_.shift);
  // The kernel writes both or none: of one that is frozen, to a place nobody reads.
  Scratch<T> unread;
  if ((gain == nullptr) != (shift == nullptr)) {
    GEMINID_ASSIGN_OR_RETURN(unread, Scratch<T>::Allocate(*resources_, cols_));
    (gain == nullptr ? gain : shift) = unread.data();
  }
  const kernels::LayerNormBackwardArgs<T> args = {.dy = dy,
                                                  .x = x,
                                                  .gamma = gain_.data(),
                                                  .mean = rstd + rows_,
                                                  .rstd = rstd,
                                                  .residual = residual,
                                                  .dx = dx,
                                                  .dgamma = gain,
                                                  .dbeta = shift};
  return FromKernel(kernels::LayerNormBackward<T>(shape, args, scratch.data(), bytes),
                    "LayerNormBackward");
}

template class NormLayer<float>;
template class NormLayer<kernels::BFloat16>;

}  // namespace geminid::trainer
