// The parameters of a sublayer's two layers in the form of training/nn/parallel/tensor.
#ifndef GEMINID_TRAINING_TRANSFORMER_TENSOR_HALF_H_
#define GEMINID_TRAINING_TRANSFORMER_TENSOR_HALF_H_

#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parameter_source.h"
#include "training/nn/tensor_parameters.h"

namespace geminid::trainer {

// The values of a block while it is used; empty without.
std::span<const float> ValuesOf(const ParameterUse& use, const TensorParameters& parameters,
                                std::optional<ParameterId> id);

// Puts a block's gradient in the place of its values, or adds it to what is there.
void Give(ParameterUse& use, ParameterId id, std::span<const float> gradient);

// Matrices as [out, in], for which those of the other layout are turned.
struct HalfValues {
  static absl::StatusOr<HalfValues> Of(collectives::LinearScratch& scratch, const ParameterUse& use,
                                       const TensorParameters& parameters, const TensorHalf& half);

  std::span<const float> w1, b1, w2, b2;
  collectives::FloatBlock turned1, turned2;
};

// Where the layers write the gradients of the same.
struct HalfGradients {
  static absl::StatusOr<HalfGradients> Allocate(collectives::LinearScratch& scratch,
                                                const TensorParameters& parameters,
                                                const TensorHalf& half);
  // To the source, as the blocks lie.
  void Give(ParameterUse& use, const TensorParameters& parameters, const TensorHalf& half) const;

  std::span<float> w1, b1, w2, b2;
  collectives::FloatBlock storage;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_HALF_H_
