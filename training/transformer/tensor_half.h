// Helpers of the tensor-parallel operators: floats of the workspace, and the parameters of two
// layers in the form of training/nn/parallel/tensor.
#ifndef GEMINID_TRAINING_TRANSFORMER_TENSOR_HALF_H_
#define GEMINID_TRAINING_TRANSFORMER_TENSOR_HALF_H_

#include <cstddef>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/parameter_source.h"
#include "training/nn/scratch.h"
#include "training/nn/tensor_parameters.h"

namespace geminid::trainer {

// A block of workspace, of known size. None: no elements.
class Floats {
 public:
  static absl::StatusOr<Floats> Allocate(const Resources& resources, size_t count);
  Floats() = default;

  std::span<float> all() const { return {storage_.data(), count_}; }
  std::span<float> part(size_t first, size_t count) const { return all().subspan(first, count); }
  size_t size() const { return count_; }

 private:
  Scratch<float> storage_;
  size_t count_ = 0;
};

// The values of a block while it is used.
std::span<const float> ValuesOf(const ParameterUse& use, const TensorParameters& parameters,
                                ParameterId id);
std::span<const float> ValuesOf(const ParameterUse& use, const TensorParameters& parameters,
                                std::optional<ParameterId> id);  // empty without

// Gives the source a block's gradient, in the place of its values.
absl::Status Give(ParameterUse& use, ParameterId id, std::span<const float> gradient);

// The parameters of a half's two layers: matrices as [out, in], for which those of the other layout
// are turned.
class HalfValues {
 public:
  static absl::StatusOr<HalfValues> Of(const Resources& resources, const ParameterUse& use,
                                       const TensorParameters& parameters, const TensorHalf& half);

  std::span<const float> w1, b1, w2, b2;

 private:
  Floats turned1_, turned2_;
};

// Where the library writes their gradients.
class HalfGradients {
 public:
  static absl::StatusOr<HalfGradients> Allocate(const Resources& resources,
                                                const TensorParameters& parameters,
                                                const TensorHalf& half);
  // To the source, as the blocks lie.
  absl::Status Give(ParameterUse& use, const TensorParameters& parameters,
                    const TensorHalf& half) const;

  std::span<float> w1, b1, w2, b2;

 private:
  Floats storage_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_HALF_H_
