// The two layers of an MLP with what is between them, over a tensor-parallel grid. What products
// read and what is kept is fp32 or bf16 (parallel_linear.h), all else fp32:
//
//   GELU:    y = gelu(x W1^T + b1) W2^T + b2
//   SwiGLU:  y = (gate sigmoid(gate) up) W2^T + b2,  gate and up are sections of W1's outputs
//
// The output of the first layer has the layout of the second layer's input, and the activation
// works on single elements. So only the two layers exchange data (parallel_linear.h). Their shapes
// are
//
//   first   {tokens, hidden, inner}; in SwiGLU {tokens, hidden, 2 inner}
//   second  {tokens, inner, hidden}
//
// Beside x, a rank keeps its block of the first layer's Y for the backward pass: 1/P of Y in every
// mode. The backward pass recomputes the second layer's input.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_MLP_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_MLP_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/fused_outputs.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/parallel_linear.h"
#include "training/nn/parallel/tensor/tensor_groups.h"

namespace geminid::collectives {

enum class Activation : uint8_t { kGelu, kSwiglu };

struct MlpOptions {
  Activation activation = Activation::kGelu;
  size_t tokens = 0;
  size_t hidden = 0;
  size_t inner = 0;
  bool bias = false;
};

// All ranks of the grid call the same methods in the same order. One thread at a time. Errors are
// those of the layers; INVALID_ARGUMENT for a span that is not its block's size, before anything is
// sent. T is float or kernels::BFloat16.
template <typename T>
class ParallelMlp {
 public:
  // `groups` and `scratch` outlive the block, which holds no memory. INVALID_ARGUMENT for sizes
  // that the layers refuse.
  static absl::StatusOr<std::unique_ptr<ParallelMlp>> Make(TensorGroups& groups,
                                                           const MlpOptions& options,
                                                           LinearScratch& scratch);

  // x has the layout of first().x, and y that of second().y; both layouts are equal.
  const LinearBlocks& first() const { return first_->blocks(); }
  const LinearBlocks& second() const { return second_->blocks(); }
  // The sections are gate and up, if the activation has both.
  const FusedOutputs& outputs() const { return outputs_; }
  // The number of elements beside x that the forward pass keeps for the backward pass.
  size_t kept() const { return first().y.elements(); }

  struct Parameters {
    std::span<const T> w1;
    std::span<const float> b1;  // empty without a bias, as b2
    std::span<const T> w2;
    std::span<const float> b2;
  };
  absl::Status Forward(std::span<const T> x, const Parameters& parameters, std::span<T> kept,
                       std::span<float> y);

  struct Gradients {
    std::span<float> x, w1, b1, w2, b2;
  };
  // Overwrites the gradients. If several ranks store the same elements of a parameter, each gets
  // their whole gradient.
  absl::Status Backward(std::span<const T> x, const Parameters& parameters, std::span<const T> kept,
                        std::span<const T> dy, const Gradients& gradients);

 private:
  ParallelMlp(TensorGroups& groups, const MlpOptions& options, FusedOutputs outputs,
              LinearScratch& scratch)
      : groups_(groups), options_(options), outputs_(std::move(outputs)), scratch_(scratch) {}

  absl::StatusOr<ElementBlock<T>> Take(std::string_view what, size_t elements) {
    return groups_.OrTellRanks(scratch_.Take<T>(what, elements));
  }
  absl::StatusOr<RoundedResults<T>> Rounding(std::span<T> to) {
    return groups_.OrTellRanks(
        RoundedResults<T>::For(scratch_, "rounded values of a sharded MLP", to));
  }
  absl::Status Activate(const T* kept, T* inner) const;
  // Gradients of what the first layer gave.
  absl::Status ActivateBackward(const T* kept, const T* dinner, T* dkept) const;

  TensorGroups& groups_;
  const MlpOptions options_;
  const FusedOutputs outputs_;
  LinearScratch& scratch_;
  std::unique_ptr<ParallelLinear<T>> first_, second_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_MLP_H_
