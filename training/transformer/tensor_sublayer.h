// The parameters of a grid's layers in the form of training/nn/parallel/tensor: matrices of what
// products read, all else as fp32.
#ifndef GEMINID_TRAINING_TRANSFORMER_TENSOR_SUBLAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_TENSOR_SUBLAYER_H_

#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/operands.h"
#include "training/nn/parameter_source.h"
#include "training/nn/tensor_parameters.h"

namespace geminid::trainer {

// The values of a block of type T while it is used.
template <typename T>
std::span<const T> MatrixOf(const ParameterUse& use, const TensorParameters& parameters,
                            ParameterId id);

// The values of a block of type T, or one that is fp32 whatever T is, as fp32; empty without.
template <typename T>
absl::StatusOr<collectives::Converted<float>> ValuesOf(collectives::LinearScratch& scratch,
                                                       const ParameterUse& use,
                                                       const TensorParameters& parameters,
                                                       std::optional<ParameterId> id);

// Puts a gradient in the place of such a block's values, or adds it to what is there.
template <typename T>
absl::Status Give(collectives::LinearScratch& scratch, ParameterUse& use,
                  const TensorParameters& parameters, ParameterId id,
                  std::span<const float> gradient);

// Matrices as [out, in], for which those of the other layout are turned.
template <typename T>
struct TensorSublayerValues {
  static absl::StatusOr<TensorSublayerValues> Of(collectives::LinearScratch& scratch,
                                                 const ParameterUse& use,
                                                 const TensorParameters& parameters,
                                                 const TensorSublayer& sublayer);

  std::span<const T> w1, w2;
  collectives::Converted<float> b1, b2;
  collectives::ElementBlock<T> turned1, turned2;
};

// The memory to which the layers write the gradients of TensorSublayerValues.
struct TensorSublayerGradients {
  static absl::StatusOr<TensorSublayerGradients> Allocate(collectives::LinearScratch& scratch,
                                                          const TensorParameters& parameters,
                                                          const TensorSublayer& sublayer);
  // To the source, as the blocks lie.
  template <typename T>
  absl::Status Give(collectives::LinearScratch& scratch, ParameterUse& use,
                    const TensorParameters& parameters, const TensorSublayer& sublayer) const;

  std::span<float> w1, b1, w2, b2;
  collectives::FloatBlock storage;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_SUBLAYER_H_
