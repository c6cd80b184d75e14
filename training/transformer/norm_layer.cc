#include "training/transformer/norm_layer.h"

#include <type_traits>

#include "base/status_macros.h"
#include "training/nn/later_gradients.h"
#include "training/nn/layer_share.h"

namespace geminid::trainer {

template <typename T>
absl::StatusOr<NormLayer<T>> NormLayer<T>::Create(const Resources& resources,
                                                  const SublayerContext& context,
                                                  const NormPlace& place, size_t rows,
                                                  size_t cols) {
  NormLayer layer;
  layer.resources_ = &resources;
  layer.place_ = place;
  layer.shape_ = {.rows = rows,
                  .cols = cols,
                  .epsilon = static_cast<float>(context.config->norm_epsilon),
                  .shifts = place.shift.has_value()};
  GEMINID_ASSIGN_OR_RETURN(layer.statistics_,
                           Scratch<float>::Allocate(resources, rows * (place.shift ? 2 : 1)));
  layer.wide_ = context.config->fp32_norms;
  GEMINID_ASSIGN_OR_RETURN(
      layer.gain_,
      Scratch<std::byte>::Allocate(resources, cols * (layer.wide_ ? sizeof(float) : sizeof(T))));
  return layer;
}

template <typename T>
absl::Status NormLayer<T>::Forward(const ParameterUse& use, const T* x, T* y) {
  return wide_ ? ForwardWith<float>(use, x, y) : ForwardWith<T>(use, x, y);
}

template <typename T>
absl::Status NormLayer<T>::Backward(ParameterUse& use, const T* dy, const T* x, const T* residual,
                                    T* dx) {
  return wide_ ? BackwardWith<float>(use, dy, x, residual, dx)
               : BackwardWith<T>(use, dy, x, residual, dx);
}

template <typename T>
absl::Status NormLayer<T>::SumGradients(ParameterUse& use, LayerShare& share) {
  const auto sum = [&](auto* gradient) {
    return gradient == nullptr ? absl::OkStatus() : share.Sum(*resources_, gradient, shape_.cols);
  };
  const auto sum_of = [&](ParameterId id) {
    return wide_ ? sum(GradientOf<float>(use, id)) : sum(GradientOf<T>(use, id));
  };
  GEMINID_RETURN_IF_ERROR(sum_of(place_.gain));
  return place_.shift ? sum_of(*place_.shift) : absl::OkStatus();
}

template <typename T>
template <typename P>
absl::Status NormLayer<T>::ForwardWith(const ParameterUse& use, const T* x, T* y) {
  const P* const gain = WeightOf<P>(use, place_.gain);
  auto* const kept = reinterpret_cast<P*>(gain_.data());
  GEMINID_RETURN_IF_ERROR(KernelsFor<P>(*resources_)
                              .Copy(*resources_, Matrix<const P>(gain, 1, shape_.cols),
                                    Matrix<P>(kept, 1, shape_.cols)));
  const NormForwardArgs<T, P> args = {
      .x = x,
      .gain = gain,
      .shift = place_.shift ? WeightOf<P>(use, *place_.shift) : nullptr,
      .y = y,
      .statistics = statistics_.data()};
  const KernelsOf<T>& math = KernelsFor<T>(*resources_);
  if constexpr (std::is_same_v<P, T>) {
    return math.NormForward(*resources_, shape_, args);
  } else {
    return math.NormForwardWide(*resources_, shape_, args);
  }
}

// Gives the kernel memory for these gradients that lasts until the second half of the backward
// pass. They are small, and the kernel computes them together with the input's gradient.
template <typename T>
template <typename P>
absl::Status NormLayer<T>::GradientsForLater(P** gain, P** shift) {
  const auto keep = [this](ParameterId id, P** place) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(P* const kept,
                             resources_->later->Allocate<P>(*resources_, shape_.cols));
    *place = kept;
    resources_->later->Add(
        [kept, id, cols = shape_.cols](const Resources& then, ParameterUse& use) -> absl::Status {
          P* const gradient = GradientOf<P>(use, id);
          if (gradient == nullptr) return absl::OkStatus();
          return KernelsFor<P>(then).Copy(then, Matrix<const P>(kept, 1, cols),
                                          Matrix<P>(gradient, 1, cols));
        });
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(keep(place_.gain, gain));
  return place_.shift ? keep(*place_.shift, shift) : absl::OkStatus();
}

template <typename T>
template <typename P>
absl::Status NormLayer<T>::BackwardWith(ParameterUse& use, const T* dy, const T* x,
                                        const T* residual, T* dx) {
  P* gain = nullptr;
  P* shift = nullptr;
  if (resources_->later != nullptr) {
    GEMINID_RETURN_IF_ERROR(GradientsForLater<P>(&gain, &shift));
  } else {
    gain = GradientOf<P>(use, place_.gain);
    if (place_.shift) shift = GradientOf<P>(use, *place_.shift);
  }
  // The kernel writes both gradients or neither. If one parameter is frozen, nobody reads its
  // buffer.
  Scratch<P> unread;
  if (place_.shift && (gain == nullptr) != (shift == nullptr)) {
    GEMINID_ASSIGN_OR_RETURN(unread, Scratch<P>::Allocate(*resources_, shape_.cols));
    (gain == nullptr ? gain : shift) = unread.data();
  }
  const NormBackwardArgs<T, P> args = {.dy = dy,
                                       .x = x,
                                       .gain = reinterpret_cast<const P*>(gain_.data()),
                                       .statistics = statistics_.data(),
                                       .residual = residual,
                                       .dx = dx,
                                       .dgain = gain,
                                       .dshift = shift};
  const KernelsOf<T>& math = KernelsFor<T>(*resources_);
  if constexpr (std::is_same_v<P, T>) {
    return math.NormBackward(*resources_, shape_, args);
  } else {
    return math.NormBackwardWide(*resources_, shape_, args);
  }
}

template class NormLayer<float>;
template class NormLayer<kernels::BFloat16>;

}  // namespace geminid::trainer
