// Softmax cross-entropy of logits that are sharded along the vocabulary: no rank ever holds all
// logits of a token. In fp32.
//
//   loss[t] = log(sum_v exp(logits[t,v])) - logits[t,targets[t]]
//   dlogits[t,v] = grad_scale (softmax(logits[t])[v] - (v == targets[t]))
//
// Logits have the layout of a first layer's Y with PaddedVocabulary() outputs. Columns beyond the
// vocabulary do not count and get gradient 0:
//
//   mode            tokens by            vocabulary by
//   1D, 1D-sequence -                    column
//   2D, 2.5D        depth, then row      column
//   3D              weight, then output  input
//
// Received by each rank, with t tokens in its block and n ranks along the vocabulary's axis:
//
//   forward   largest logits, sums and the targets' logits: all-reduces of t and of 2 t elements,
//             6 (n-1)/n t together (3 (n-1) t if each has up to kDirectAllReduceBytes); the loss:
//             16 bytes from each other rank along each axis that partitions the tokens
//   backward  nothing
//   partners  1D, 1D-sequence P-1;  2D, 2.5D 2 (q-1) + d-1;  3D 3 (d-1)
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_CROSS_ENTROPY_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_CROSS_ENTROPY_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/model/cross_entropy/cross_entropy_part.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/tensor_groups.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {

struct LogitsShape {
  size_t tokens = 0;
  size_t vocabulary = 0;
};

// The block of [tokens, PaddedVocabulary()]. INVALID_ARGUMENT names the size that must be
// divisible.
absl::StatusOr<Block> BlockOf(const TensorGrid& grid, const LogitsShape& shape, int rank);

// All ranks of the grid call the same methods in the same order. One thread at a time. Errors are
// those of the communicators. INVALID_ARGUMENT, before anything is sent, for a span that does not
// have its block's size and for a target outside the vocabulary. If only some ranks have this
// error, the others wait for them until their timeout. On a GPU targets are not checked: the logit
// of a target outside the vocabulary counts as 0.
class ParallelCrossEntropy {
 public:
  // `groups` and `scratch` outlive this object, which holds no memory. INVALID_ARGUMENT like
  // BlockOf.
  static absl::StatusOr<std::unique_ptr<ParallelCrossEntropy>> Make(TensorGroups& groups,
                                                                    const LogitsShape& shape,
                                                                    LinearScratch& scratch);

  // The block of logits; targets belong to its rows.
  const Block& block() const { return block_; }
  // The number of elements beside the logits that the forward pass keeps for the backward pass.
  size_t statistics() const { return 2 * block_.rows.count; }

  // The loss of all tokens of the grid, equal on every rank. The mean is sum / counted.
  struct Loss {
    double sum = 0;
    size_t counted = 0;  // targets other than kernels::kIgnoredTarget
  };
  absl::StatusOr<Loss> Forward(std::span<const float> logits, std::span<const int32_t> targets,
                               std::span<float> statistics);

  // For the mean, `grad_scale` is 1 / counted. `dlogits` may be `logits`.
  absl::Status Backward(std::span<const float> logits, std::span<const int32_t> targets,
                        std::span<const float> statistics, float grad_scale,
                        std::span<float> dlogits);

 private:
  ParallelCrossEntropy(TensorGroups& groups, const LogitsShape& shape, const Block& block,
                       LinearScratch& scratch);

  absl::Status Check(std::span<const float> logits, std::span<const int32_t> targets,
                     size_t statistics) const;

  TensorGroups& groups_;
  const LogitsShape shape_;
  const Block block_;
  LinearScratch& scratch_;
  const ActivationLayout layout_;
  const kernels::CrossEntropyPart part_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_CROSS_ENTROPY_H_
