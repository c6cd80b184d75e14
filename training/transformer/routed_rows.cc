#include "training/transformer/routed_rows.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "training/transformer/host_rows.h"

namespace geminid::trainer {

using collectives::Routing;

size_t RowsComputed(size_t rows, size_t most) {
  size_t computed = 16;
  while (computed < rows) computed += computed % 3 == 0 ? computed / 3 : computed / 2;
  return std::min(computed, most);
}

template <typename T>
absl::StatusOr<Routing> RouteTokens(const Resources& resources, const SublayerContext& context,
                                    const RoutedPlaces& places, const ParameterUse& use,
                                    Matrix<const T> n) {
  const size_t experts = places.router.out;
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<float>::Allocate(resources, n.rows * experts));
  const Matrix<float> logits(storage.data(), n.rows, experts);
  GEMINID_RETURN_IF_ERROR(
      (Forward<T, float>(resources, n, WeightOf<T>(use, places.router), logits)));
  GEMINID_ASSIGN_OR_RETURN(const auto read,
                           HostRows<float>::Of(resources, MemoryOfRows(context), logits));
  return collectives::Route({.experts = experts,
                             .choices = context.config->experts_per_token,
                             .capacity_factor = context.expert_capacity,
                             .capacity_group = context.shape.sequence_length},
                            {read.rows().data, logits.size()});
}

template <typename T>
absl::Status ZeroGradients(const Resources& resources, const ExpertPlaces& places,
                           ParameterUse& use) {
  for (const LinearPlace* place : {&places.input, &*places.up, &places.output}) {
    T* const gradient = GradientOf<T>(use, place->weight);
    if (gradient == nullptr) continue;
    GEMINID_RETURN_IF_ERROR(
        KernelsFor<T>(resources).Zero(resources, gradient, place->in * place->out * sizeof(T)));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RouterBackward(const Resources& resources, const SublayerContext& context,
                            const RoutedPlaces& places, ParameterUse& use, const Routing& routing,
                            std::span<const float> weight_gradients, Matrix<const T> n,
                            Matrix<float> dn) {
  std::vector<float> logits(routing.probabilities.size());
  GEMINID_RETURN_IF_ERROR(collectives::RouteBackward(
      routing, weight_gradients,
      {.scale = static_cast<double>(context.balance_scale), .group = context.shape.sequence_length},
      logits));
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, logits.size()));
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).UploadRounded(resources, logits.data(),
                                                                 logits.size(), storage.data()));
  const Matrix<const T> gradient(storage.data(), n.rows, places.router.out);
  GEMINID_RETURN_IF_ERROR((BackwardInput<T, float>(
      resources, gradient, WeightOf<T>(use, places.router), dn, /*accumulate=*/true)));
  return BackwardWeight<T>(resources, gradient, n, GradientOf<T>(use, places.router));
}

#define GEMINID_INSTANTIATE(T)                                                                  \
  template absl::StatusOr<Routing> RouteTokens(const Resources&, const SublayerContext&,        \
                                               const RoutedPlaces&, const ParameterUse&,        \
                                               Matrix<const T>);                                \
  template absl::Status ZeroGradients<T>(const Resources&, const ExpertPlaces&, ParameterUse&); \
  template absl::Status RouterBackward(const Resources&, const SublayerContext&,                \
                                       const RoutedPlaces&, ParameterUse&, const Routing&,      \
                                       std::span<const float>, Matrix<const T>, Matrix<float>);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
