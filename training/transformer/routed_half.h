// The sublayer of a layer of experts: out = x + sum_e w_e mlp_e(n), n = norm(x). The sum is over
// the experts that a router chooses for each token (training/nn/parallel/experts/routing.h). No
// token is dropped. It runs on the host alone.
//
// Each expert is an operator of its own, in the order of their numbers, whether a token chose it or
// not: what is used when does not depend on the tokens, so that plans hold and ranks agree. The
// operator of norm and router is open around them.
//
// Beyond x and out (or dx) a pass needs n, a sum of [tokens, hidden] in fp32, an expert's rows and
// what comes of them, for which there is room as if it were chosen by all tokens, and the columns
// of mlp_half.h. Rows of zeros fill an expert's up to one of a few numbers, so that products of few
// shapes occur: each is planned once.
#ifndef GEMINID_TRAINING_TRANSFORMER_ROUTED_HALF_H_
#define GEMINID_TRAINING_TRANSFORMER_ROUTED_HALF_H_

#include "training/transformer/mlp_half.h"
#include "training/transformer/routed_spread.h"

namespace geminid::trainer {

// Fills `kept` unless it is null.
template <typename T>
absl::Status RoutedHalfForward(const Resources& resources, const HalfContext& context,
                               const RoutedPlaces& places, const ParameterUse& use,
                               const ExpertSource& experts, const T* x, T* out,
                               const KeptMlp<T>* kept);

// As MlpHalfBackward. The gradients of the experts are written here, zeros where no token chose
// one; those of norm and router are there. Of HalfContext::balance_scale times the sum of the
// balance losses of the sequences, the gradient is added.
template <typename T>
absl::Status RoutedHalfBackward(const Resources& resources, const HalfContext& context,
                                const RoutedPlaces& places, ParameterUse& use,
                                const ExpertSource& experts, const T* x, T* gradient,
                                const KeptMlp<T>* kept);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ROUTED_HALF_H_
