// The experts of a layer when each rank has some of them
// (training/nn/parallel/experts/row_exchange.h). Rows travel in fp32. Their buffers come from the
// context (SequenceExchange::memory), because the number of rows changes from step to step. The
// backward pass sends the rows again.
//
// Each rank has equally many tokens. All tokens may choose one expert: beside the buffers a pass
// needs ranks x tokens x hidden elements for the expert's rows, and as many for its outputs.
#ifndef GEMINID_TRAINING_TRANSFORMER_ROUTED_SPREAD_H_
#define GEMINID_TRAINING_TRANSFORMER_ROUTED_SPREAD_H_

#include <span>

#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/nn/parallel/experts/routing.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// Where the experts' parameters come from. Norm and router are already fetched.
struct ExpertSource {
  ParameterSource& source;
  zero::Pass pass;
};

// sum += the weighted outputs of the experts for n. context.experts is not null, and all of its
// ranks make this call.
template <typename T>
absl::Status SpreadForward(const Resources& resources, const SublayerContext& context,
                           const RoutedPlaces& places, const ExpertSource& experts,
                           const collectives::Routing& routing, Matrix<const T> n,
                           Matrix<float> sum);

// Adds to dn, fills the gradients of the routing weights, [tokens, choices], and writes those of
// this rank's experts. The experts' gradients are those of the mean over the ranks, like all
// gradients that ranks sum.
template <typename T>
absl::Status SpreadBackward(const Resources& resources, const SublayerContext& context,
                            const RoutedPlaces& places, const ExpertSource& experts,
                            const collectives::Routing& routing, Matrix<const T> n,
                            Matrix<const T> dy, Matrix<float> dn,
                            std::span<float> weight_gradients);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ROUTED_SPREAD_H_
