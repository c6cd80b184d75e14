// What layers of experts have in common, whether a rank has all experts or some of them.
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

// How many rows are computed for so many: 16, 24, 32, 48, 64 and so on, or the most there may be.
size_t RowsComputed(size_t rows, size_t most);

// n [tokens, hidden]: what the router reads.
template <typename T>
absl::StatusOr<collectives::Routing> RouteTokens(const Resources& resources,
                                                 const HalfContext& context,
                                                 const RoutedPlaces& places,
                                                 const ParameterUse& use, Matrix<const T> n);

// The gradient of an expert that no token chose.
template <typename T>
absl::Status ZeroGradients(const Resources& resources, const ExpertPlaces& places,
                           ParameterUse& use);

// Adds to dn, and writes the router's gradient in place of its weight.
template <typename T>
absl::Status RouterBackward(const Resources& resources, const HalfContext& context,
                            const RoutedPlaces& places, ParameterUse& use,
                            const collectives::Routing& routing,
                            std::span<const float> weight_gradients, Matrix<const T> n,
                            Matrix<float> dn);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ROUTED_ROWS_H_
