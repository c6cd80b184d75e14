// Layer and RMS normalisation of activations between the pairs of layers, in fp32. In 2D, 2.5D and
// 3D the features are sharded, so the sums of a row are added up over the axis that shards it.
//
//   mean = sum(x) / hidden;  rstd = 1/sqrt(sum((x - mean)^2) / hidden + epsilon)
//   xhat = (x - mean) rstd;  y = xhat gamma + beta          (RMS: mean and beta are 0)
//   g = dy gamma;  dx = rstd (g - sum(g)/hidden - xhat sum(g xhat)/hidden)
//   dgamma = sum of dy xhat over all tokens;  dbeta = sum of dy
//
// Squares are of values centred by the whole row's mean, so nothing cancels. x and y have the
// layout of a first layer's X. gamma and beta have `hidden` elements each:
//
//   mode         a rank stores                           their gradients
//   1D           all                                     every rank has the whole
//   1D-sequence  all                                     all-reduced
//   2D, 2.5D     a slice by column, then row; gathered   scattered along the rows, all-reduced
//                along the rows                          along the depth
//   3D           the slice by output                     all-reduced along input and weight
//
// Elements that each rank receives: t tokens in its block, n ranks along the axis that shards the
// features, and c = 2 parameters of `hidden` elements (1 in RMS). R(s, n) = 2 (n-1)/n s is an
// all-reduce of s elements over n ranks, or (n-1) s for up to kDirectAllReduceBytes:
//
//   mode         forward                          backward                              partners
//   1D           none                             none                                  0
//   1D-sequence  none                             c R(hidden, P)                        P-1
//   2D, 2.5D     c R(t, q) + c (q-1)/q^2 hidden   R(c t, q) + (c+1) (q-1)/q^2 hidden    2 (q-1)
//                                                 + c R(hidden/q^2, d)                  + d-1
//   3D           c R(t, d)                        R(c t, d) + 2 c R(hidden/d, d)        3 (d-1)
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_NORM_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_NORM_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/model/normalisation/norm_part.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/tensor_groups.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {

enum class NormKind : uint8_t { kLayer, kRms };

struct NormOptions {
  NormKind kind = NormKind::kLayer;
  size_t tokens = 0;
  size_t hidden = 0;
  float epsilon = 1e-5F;  // finite, >= 0
};

struct NormBlocks {
  Block x;
  Range parameter;  // of gamma and beta
};

// INVALID_ARGUMENT names the size that must be divisible, and the divisor.
absl::StatusOr<NormBlocks> BlocksOf(const TensorGrid& grid, const NormOptions& options, int rank);

// All ranks of the grid call the same methods in the same order. One thread at a time. Errors are
// those of the communicators; INVALID_ARGUMENT, before anything is sent, for a span that does not
// have its block's size.
class ParallelNorm {
 public:
  // `groups` and `scratch` outlive the layer, which holds no memory. INVALID_ARGUMENT like
  // BlocksOf, and for an invalid epsilon.
  static absl::StatusOr<std::unique_ptr<ParallelNorm>> Make(TensorGroups& groups,
                                                            const NormOptions& options,
                                                            LinearScratch& scratch);

  const NormBlocks& blocks() const { return blocks_; }
  // The number of elements beside x that the forward pass keeps for the backward pass.
  size_t statistics() const { return sums_ * blocks_.x.rows.count; }

  // `beta` is empty in RMS normalisation. `y` may be `x` if no backward pass follows.
  absl::Status Forward(std::span<const float> x, std::span<const float> gamma,
                       std::span<const float> beta, std::span<float> statistics,
                       std::span<float> y);

  struct Gradients {
    std::span<float> x;  // may be dy
    std::span<float> gamma;
    std::span<float> beta;  // empty in RMS normalisation
  };
  // Overwrites the gradients. If several ranks store the same elements of gamma or beta, each gets
  // their whole gradient.
  absl::Status Backward(std::span<const float> x, std::span<const float> gamma,
                        std::span<const float> statistics, std::span<const float> dy,
                        const Gradients& gradients);

 private:
  ParallelNorm(TensorGroups& groups, const NormOptions& options, const NormBlocks& blocks,
               LinearScratch& scratch);

  bool is_rms() const { return options_.kind == NormKind::kRms; }
  size_t rows() const { return part_.rows; }
  // The mean of each row, which follows rstd; null in RMS normalisation.
  const float* MeanIn(std::span<const float> statistics) const;
  absl::StatusOr<FloatBlock> Take(std::string_view what, size_t elements) {
    return groups_.OrTellRanks(scratch_.Take(what, elements));
  }
  // The parameter of this rank's features, gathered into `whole` from the ranks' slices. If `whole`
  // is empty, `parameter` itself.
  absl::StatusOr<const float*> Gathered(std::span<const float> parameter, std::span<float> whole);
  absl::Status AddUp(std::span<const float> of_features, std::span<float> kept);
  // Turns the sums of each row into means over the whole row.
  absl::Status AddRows(std::span<float> sums);

  TensorGroups& groups_;
  const NormOptions options_;
  const NormBlocks blocks_;
  LinearScratch& scratch_;
  const FeatureLayout parameter_;
  const Axes features_;
  const kernels::NormPart part_;
  const size_t sums_;  // the number of sums of each row, and of parameters of each feature
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_NORM_H_
