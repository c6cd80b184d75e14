#include "training/transformer/prediction_head.h"

#include "base/status_macros.h"

namespace geminid::trainer {

template <typename T>
absl::StatusOr<PredictionHead<T>> PredictionHead<T>::Create(const Resources& resources,
                                                            const SublayerContext& context,
                                                            const HeadPlaces& places, size_t rows) {
  const size_t hidden = context.config->hidden;
  PredictionHead head;
  head.places_ = &places;
  GEMINID_ASSIGN_OR_RETURN(head.norm_, NormLayer<T>::Create(resources, context, places.norm, rows));
  GEMINID_ASSIGN_OR_RETURN(head.storage_, Scratch<T>::Allocate(resources, 2 * rows * hidden));
  head.dense_ = Matrix<T>(head.storage_.data(), rows, hidden);
  head.activated_ = Matrix<T>(head.storage_.data() + rows * hidden, rows, hidden);
  return head;
}

template <typename T>
absl::Status PredictionHead<T>::Forward(const Resources& resources, const ParameterUse& use,
                                        Matrix<const T> n, Matrix<T> out) {
  GEMINID_RETURN_IF_ERROR(
      trainer::Forward<T>(resources, n, WeightOf<T>(use, places_->dense), dense_));
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Activate(resources, places_->activation, dense_,
                                                            /*up=*/nullptr, activated_.data));
  return norm_.Forward(use, activated_.data, out.data);
}

template <typename T>
absl::Status PredictionHead<T>::Backward(const Resources& resources, ParameterUse& use,
                                         Matrix<const T> n, Matrix<T> gradient) {
  GEMINID_RETURN_IF_ERROR(norm_.Backward(use, gradient.data, activated_.data,
                                         /*residual=*/nullptr, gradient.data));
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).ActivateBackward(
      resources, places_->activation, gradient, dense_.data, /*up=*/nullptr));
  GEMINID_RETURN_IF_ERROR(
      BackwardInput<T>(resources, dense_, WeightOf<T>(use, places_->dense), gradient));
  return BackwardWeight<T>(resources, dense_, n, LinearSlice{places_->dense}, use);
}

template class PredictionHead<float>;
template class PredictionHead<kernels::BFloat16>;

}  // namespace geminid::trainer
