// Y = X W^T (+ b) and its gradients over a tensor-parallel grid. X, W and dY are fp32 or bf16, and
// travel as what they are; Y, the gradients and all sums over ranks are fp32. Which block of each
// matrix a rank gives and gets is in tensor_grid.h. In 1D the blocks are layers of their own
// (training/nn/layer_share.h), whose sums over ranks the formulas have.
//
// Elements that each rank receives; |.| = elements of the whole matrix, P ranks, q or d on a side:
//
//   mode       forward                          backward
//   1D first   none                             all-reduce of dX: 2 (P-1)/P |X|
//   1D second  all-reduce of Y: 2 (P-1)/P |Y|   none
//   1D-sequence: a gather and a scatter each receive (P-1)/P of a matrix
//      first   gather of X                      gather of X, scatter of dX
//      second  scatter of Y                     gather of dY
//   2D         (q-1)/q^2 (|X| + |W|)            twice that
//   2.5D       (q-1)/q^2 (|X|/d + |W|)          twice that, and 2 (d-1)/(d q^2) |W| for dW
//   3D         (d-1)/d^3 (|X| + |W| + |Y|)      (d-1)/d^3 (2 |X| + 2 |W| + |Y|)
//
// plus those of the bias, which are of the order of |b|. In 3D the backward gathers X and W again,
// so a rank stores 1/d^3 of each in between. All-reduces of up to kDirectAllReduceBytes receive
// (P-1) times their size instead.
//
// Exchanges run beside the products that do not need what they bring: in 2D and 2.5D the blocks of
// the next step and the sums of the one before, in 1D-sequence the sum of dX beside the product for
// dW, in 3D gathers beside each other and the sum of dX.
// The same bits on every backend and at every timing: partial sums are added in rank order.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_LINEAR_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_LINEAR_H_

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/operands.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/nn/parallel/tensor/tensor_groups.h"

namespace geminid::collectives {

struct LinearOptions {
  LinearRole role = LinearRole::kFirst;
  LinearShape shape;
  bool bias = false;
};

// All ranks of the grid call the same methods in the same order. One thread at a time. Errors:
// those of the communicators; INVALID_ARGUMENT for a span that is not its block's size, before
// anything is sent; RESOURCE_EXHAUSTED where the scratch has no memory for what layer_scratch.h
// says, which the other ranks are told (TensorGroups::Abort). T is float or kernels::BFloat16.
template <typename T>
class ParallelLinear {
 public:
  // `groups` and `scratch` outlive the layer, which holds no memory of its own. INVALID_ARGUMENT as
  // BlocksOf, and in 1D.
  static absl::StatusOr<std::unique_ptr<ParallelLinear>> Make(TensorGroups& groups,
                                                              const LinearOptions& options,
                                                              LinearScratch& scratch);
  virtual ~ParallelLinear() = default;
  ParallelLinear(const ParallelLinear&) = delete;
  ParallelLinear& operator=(const ParallelLinear&) = delete;

  const LinearBlocks& blocks() const { return blocks_; }

  // `bias` is empty without one.
  absl::Status Forward(std::span<const T> x, std::span<const T> w, std::span<const float> bias,
                       std::span<float> y);

  struct Gradients {
    std::span<float> x, w;
    std::span<float> bias;  // empty if the layer has none
  };
  // Overwrites the gradients. `x` and `w` are those of Forward. If several ranks store the same
  // elements of W or b, each gets their whole gradient.
  absl::Status Backward(std::span<const T> x, std::span<const T> w, std::span<const T> dy,
                        const Gradients& gradients);

 protected:
  ParallelLinear(TensorGroups& groups, const LinearOptions& options, const LinearBlocks& blocks)
      : groups_(groups), options_(options), blocks_(blocks) {}

  TensorGroups& groups() { return groups_; }
  const LinearOptions& options() const { return options_; }

  // Sizes are right.
  virtual absl::Status DoForward(const T* x, const T* w, const float* bias, float* y) = 0;
  virtual absl::Status DoBackward(const T* x, const T* w, const T* dy, float* dx, float* dw,
                                  float* db) = 0;

 private:
  TensorGroups& groups_;
  const LinearOptions options_;
  const LinearBlocks blocks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_LINEAR_H_
