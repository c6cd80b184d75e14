// The sublayer of a layer of experts: out = x + sum_e w_e mlp_e(n), n = norm(x). The sum is over
// the experts that a router chooses for each token (training/nn/parallel/experts/routing.h). No
// token is dropped. The sublayer runs on the host alone.
//
// Each expert is an operator of its own, in the order of their numbers, even if no token chose the
// expert. So the order of operators does not depend on the tokens: plans stay valid and ranks
// agree. The operator of norm and router is open around the experts.
//
// Beyond x and out (or dx) a pass needs n, an fp32 sum of [tokens, hidden], the inputs and outputs
// of an expert's rows, and the columns of mlp_sublayer.h. There is memory for an expert that all
// tokens choose. Rows of zeros round an expert's rows up to one of a few numbers, so that matrix
// products have few shapes and each shape is planned once.
#ifndef GEMINID_TRAINING_TRANSFORMER_ROUTED_SUBLAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_ROUTED_SUBLAYER_H_

#include "training/transformer/mlp_sublayer.h"
#include "training/transformer/routed_spread.h"

namespace geminid::trainer {

// Fills `kept` unless it is null.
template <typename T>
absl::Status RoutedSublayerForward(const Resources& resources, const SublayerContext& context,
                                   const RoutedPlaces& places, const ParameterUse& use,
                                   const ExpertSource& experts, const T* x, T* out,
                                   const MlpActivations<T>* kept);

// As MlpSublayerBackward. Writes the gradients of the experts, zeros for an expert that no token
// chose, and those of norm and router. Also adds the gradient of SublayerContext::balance_scale
// times the sum of the sequences' balance losses.
template <typename T>
absl::Status RoutedSublayerBackward(const Resources& resources, const SublayerContext& context,
                                    const RoutedPlaces& places, ParameterUse& use,
                                    const ExpertSource& experts, const T* x, T* gradient,
                                    const MlpActivations<T>* kept);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ROUTED_SUBLAYER_H_
