// The head of a masked language model (BERT): what its table foretells from is
// norm(activation(n W + b)), where n is what the last norm gives.
#ifndef GEMINID_TRAINING_TRANSFORMER_PREDICTION_HEAD_H_
#define GEMINID_TRAINING_TRANSFORMER_PREDICTION_HEAD_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/norm_layer.h"

namespace geminid::trainer {

// Of some rows. What the backward pass needs of the forward pass is here, freed with this object.
template <typename T>
class PredictionHead {
 public:
  // `places` outlives it.
  static absl::StatusOr<PredictionHead> Create(const Resources& resources,
                                               const HalfContext& context, const HeadPlaces& places,
                                               size_t rows);

  // All matrices are dense, [rows, hidden].
  absl::Status Forward(const Resources& resources, const ParameterUse& use, Matrix<const T> n,
                       Matrix<T> out);

  // Turns the gradient of what came out into that of n. Writes those of the parameters. Once, after
  // Forward.
  absl::Status Backward(const Resources& resources, ParameterUse& use, Matrix<const T> n,
                        Matrix<T> gradient);

 private:
  const HeadPlaces* places_ = nullptr;
  NormLayer<T> norm_;
  Scratch<T> storage_;
  Matrix<T> dense_, activated_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_PREDICTION_HEAD_H_
