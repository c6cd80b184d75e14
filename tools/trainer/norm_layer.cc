#include "tools/trainer/norm_layer.h"

#include "base/status_macros.h"

namespace geminid::trainer {

template <typename T>
absl::StatusOr<NormLayer<T>> NormLayer<T>::Create(const Resources& resources,
                                                  const HalfContext& context,
                                                  const NormPlace& place, size_t rows) {
  const size_t cols = context.config->hidden;
  NormLayer layer;
  layer.resources_ = &resources;
  layer.place_ = place;
  layer.shape_ = {.rows = rows,
                  .cols = cols,
                  .epsilon = static_cast<float>(context.config->norm_epsilon),
                  .shifts = place.shift.has_value()};
  GEMINID_ASSIGN_OR_RETURN(layer.statistics_,
                           Scratch<float>::Allocate(resources, rows * (place.shift ? 2 : 1)));
  GEMINID_ASSIGN_OR_RETURN(layer.gain_, Scratch<T>::Allocate(resources, cols));
  return layer;
}

template <typename T>
absl::Status NormLayer<T>::Forward(const ParameterUse& use, const T* x, T* y) {
  const T* const gain = WeightOf<T>(use, place_.gain);
  const KernelsOf<T>& math = KernelsFor<T>(*resources_);
  GEMINID_RETURN_IF_ERROR(math.Copy(*resources_, Matrix<const T>(gain, 1, shape_.cols),
                                    Matrix<T>(gain_.data(), 1, shape_.cols)));
  return math.NormForward(*resources_, shape_,
                          {.x = x,
                           .gain = gain,
                           .shift = place_.shift ? WeightOf<T>(use, *place_.shift) : nullptr,
                           .y = y,
                           .statistics = statistics_.data()});
}

template <typename T>
absl::Status NormLayer<T>::Backward(ParameterUse& use, const T* dy, const T* x, const T* residual,
                                    T* dx) {
  T* gain = GradientOf<T>(use, place_.gain);
  T* shift = place_.shift ? GradientOf<T>(use, *place_.shift) : nullptr;
  // The kernel writes both or none: of one that is frozen, to a place nobody reads.
  Scratch<T> unread;
  if (place_.shift && (gain == nullptr) != (shift == nullptr)) {
    GEMINID_ASSIGN_OR_RETURN(unread, Scratch<T>::Allocate(*resources_, shape_.cols));
    (gain == nullptr ? gain : shift) = unread.data();
  }
  return KernelsFor<T>(*resources_)
      .NormBackward(*resources_, shape_,
                    {.dy = dy,
                     .x = x,
                     .gain = gain_.data(),
                     .statistics = statistics_.data(),
                     .residual = residual,
                     .dx = dx,
                     .dgain = gain,
                     .dshift = shift});
}

template class NormLayer<float>;
template class NormLayer<kernels::BFloat16>;

}  // namespace geminid::trainer
