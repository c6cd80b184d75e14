// Functions for layers of experts, whether a rank has all experts or some of them.
#ifndef GEMINID_TRAINING_TRANSFORMER_ROUTED_ROWS_H_
#define GEMINID_TRAINING_TRANSFORMER_ROUTED_ROWS_H_

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/models/parameters.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/nn/parallel/experts/routing.h"

namespace geminid::trainer {

// `rows` rounded up to 16, 24, 32, 48, 64 and so on, but at most to `most`.
size_t RowsComputed(size_t rows, size_t most);

// Chooses experts for the tokens. The router reads n, [tokens, hidden].
template <typename T>
absl::StatusOr<collectives::Routing> RouteTokens(const Resources& resources,
                                                 const SublayerContext& context,
                                                 const RoutedPlaces& places,
                                                 const ParameterUse& use, Matrix<const T> n);

// Writes zeros as the gradient of an expert that no token chose.
template <typename T>
absl::Status ZeroGradients(const Resources& resources, const ExpertPlaces& places,
                           ParameterUse& use);

// Adds to dn, and overwrites the router's weight with its gradient.
template <typename T>
absl::Status RouterBackward(const Resources& resources, const SublayerContext& context,
                            const RoutedPlaces& places, ParameterUse& use,
                            const collectives::Routing& routing,
                            std::span<const float> weight_gradients, Matrix<const T> n,
                            Matrix<float> dn);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ROUTED_ROWS_H_
