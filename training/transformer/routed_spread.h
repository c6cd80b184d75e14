// The experts of a layer when each rank has some of them
// (training/nn/parallel/experts/row_exchange.h). Rows travel in fp32, in memory of the context
// (SequenceCut::memory), as their number changes from step to step. In the backward pass they
// travel again.
//
// Each rank has as many tokens. An expert may be chosen by all of them: beside the buffers a pass
// needs ranks x tokens x hidden elements for its rows, and as many of what comes of them.
#ifndef GEMINID_TRAINING_TRANSFORMER_ROUTED_SPREAD_H_
#define GEMINID_TRAINING_TRANSFORMER_ROUTED_SPREAD_H_

#include <span>

#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/nn/parallel/experts/routing.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// What is fetched for experts: norm and router are there.
struct ExpertSource {
  ParameterSource& source;
  zero::Pass pass;
};

// sum += what the experts make of n. context.experts is not null; all of its ranks make the call.
template <typename T>
absl::Status SpreadForward(const Resources& resources, const HalfContext& context,
                           const RoutedPlaces& places, const ExpertSource& experts,
                           const collectives::Routing& routing, Matrix<const T> n,
                           Matrix<float> sum);

// Adds to dn, fills the gradients of the weights, [tokens, choices], and writes those of this
// rank's experts: of the mean over the ranks, as other gradients are when they are added up.
template <typename T>
absl::Status SpreadBackward(const Resources& resources, const HalfContext& context,
                            const RoutedPlaces& places, const ExpertSource& experts,
                            const collectives::Routing& routing, Matrix<const T> n,
                            Matrix<const T> dy, Matrix<float> dn,
                            std::span<float> weight_gradients);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ROUTED_SPREAD_H_
