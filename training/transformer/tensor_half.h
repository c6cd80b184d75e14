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

// The values of a block that `use` holds; empty without an id.
std::span<const float> ValuesOf(const ParameterUse& use, const TensorParameters& parameters,
                                std::optional<ParameterId> id);

// Overwrites a block's values with its gradient, or adds it to an earlier gradient.
void Give(ParameterUse& use, ParameterId id, std::span<const float> gradient);

// The matrices of a sublayer as [out, in]. Matrices in the other layout are transposed copies.
struct HalfValues {
  static absl::StatusOr<HalfValues> Of(collectives::LinearScratch& scratch, const ParameterUse& use,
                                       const TensorParameters& parameters, const TensorHalf& half);

  std::span<const float> w1, b1, w2, b2;
  collectives::FloatBlock turned1, turned2;
};

// The memory to which the layers write the gradients of HalfValues.
struct HalfGradients {
  static absl::StatusOr<HalfGradients> Allocate(collectives::LinearScratch& scratch,
                                                const TensorParameters& parameters,
                                                const TensorHalf& half);
  // Gives the gradients to the source, in the stored layout of the blocks.
  void Give(ParameterUse& use, const TensorParameters& parameters, const TensorHalf& half) const;

  std::span<float> w1, b1, w2, b2;
  collectives::FloatBlock storage;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_HALF_H_
