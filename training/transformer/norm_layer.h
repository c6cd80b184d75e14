// LayerNorm or RMSNorm, as the model's family has it.
#ifndef GEMINID_TRAINING_TRANSFORMER_NORM_LAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_NORM_LAYER_H_

#include <cstddef>

#include "training/nn/blocks.h"
#include "training/nn/compute.h"

namespace geminid::trainer {

// What the backward pass needs of a forward pass: the statistics of each row, and the gain, whose
// storage the gradient takes. O(rows + cols). Gain and shift are of type T, or fp32 as
// ModelConfig::fp32_norms says.
template <typename T>
class NormLayer {
 public:
  // The scratch for `rows` rows of the hidden size, freed with this object.
  static absl::StatusOr<NormLayer> Create(const Resources& resources, const HalfContext& context,
                                          const NormPlace& place, size_t rows);

  // y = norm(x), dense. Reads the weights of `use`.
  absl::Status Forward(const ParameterUse& use, const T* x, T* y);

  // dx = residual + the gradient of x; residual is nullable. Writes the gradients of gain and
  // shift, now or later (Resources::later). `dx` may be `dy` or `residual`. After Forward.
  absl::Status Backward(ParameterUse& use, const T* dy, const T* x, const T* residual, T* dx);

 private:
  template <typename P>
  absl::Status ForwardWith(const ParameterUse& use, const T* x, T* y);
  template <typename P>
  absl::Status BackwardWith(ParameterUse& use, const T* dy, const T* x, const T* residual, T* dx);
  template <typename P>
  absl::Status GradientsForLater(P** gain, P** shift);

  const Resources* resources_ = nullptr;
  NormPlace place_;
  NormShape shape_;
  Scratch<float> statistics_;
  bool wide_ = false;  // gain and shift are fp32
  Scratch<std::byte> gain_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_NORM_LAYER_H_
