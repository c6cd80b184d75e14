// The prediction head of a masked language model (BERT): norm(activation(n W + b)), where n is the
// output of the last norm. The token table turns its output into logits.
#ifndef GEMINID_TRAINING_TRANSFORMER_PREDICTION_HEAD_H_
#define GEMINID_TRAINING_TRANSFORMER_PREDICTION_HEAD_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/norm_layer.h"

namespace geminid::trainer {

// The head for some rows. This object owns the values that the backward pass needs.
template <typename T>
class PredictionHead {
 public:
  // `places` outlives the head.
  static absl::StatusOr<PredictionHead> Create(const Resources& resources,
                                               const SublayerContext& context,
                                               const HeadPlaces& places, size_t rows);

  // All matrices are dense, [rows, hidden].
  absl::Status Forward(const Resources& resources, const ParameterUse& use, Matrix<const T> n,
                       Matrix<T> out);

  // Turns the gradient of the output into the gradient of n, and writes the parameters' gradients.
  // Call this once, after Forward.
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
