// Postpones the gradients of an operator's weights. The first half of such a backward pass computes
// the gradient of the input and stores the values that the second half needs. The second half
// computes the gradients of the weights.
#ifndef GEMINID_TRAINING_NN_LATER_GRADIENTS_H_
#define GEMINID_TRAINING_NN_LATER_GRADIENTS_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parameter_source.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

// The postponed work of one operator. Its values stay in the workspace until this object ends.
class LaterGradients {
 public:
  // Writes gradients of the operator's parameters.
  using Work = std::function<absl::Status(const Resources& resources, ParameterUse& use)>;

  template <typename T>
  absl::StatusOr<T*> Allocate(const Resources& resources, size_t count) {
    GEMINID_ASSIGN_OR_RETURN(auto bytes,
                             Scratch<std::byte>::Allocate(resources, count * sizeof(T)));
    blocks_.push_back({.bytes = std::move(bytes), .size = count * sizeof(T)});
    return reinterpret_cast<T*>(blocks_.back().bytes.data());
  }
  // Stores a dense copy; a matrix that is already stored here is returned as it is.
  template <typename T>
  absl::StatusOr<Matrix<const T>> Keep(const Resources& resources, Matrix<const T> matrix) {
    if (Has(matrix.data)) return matrix;
    GEMINID_ASSIGN_OR_RETURN(T* const data, Allocate<T>(resources, matrix.size()));
    const Matrix<T> copy(data, matrix.rows, matrix.cols);
    GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Copy(resources, matrix, copy));
    return copy;
  }
  void Add(Work work) { works_.push_back(std::move(work)); }

  // Runs all work, in the order of Add.
  absl::Status Run(const Resources& resources, ParameterUse& use) const {
    for (const Work& work : works_) GEMINID_RETURN_IF_ERROR(work(resources, use));
    return absl::OkStatus();
  }

 private:
  struct Block {
    Scratch<std::byte> bytes;
    size_t size = 0;
  };

  bool Has(const void* data) const {
    for (const Block& block : blocks_) {
      const std::byte* const begin = block.bytes.data();
      if (data >= begin && data < begin + block.size) return true;
    }
    return false;
  }

  std::vector<Block> blocks_;
  std::vector<Work> works_;
};

// A matrix that a sublayer's weights' gradients read; a stored copy if they are computed later.
template <typename T>
absl::StatusOr<Matrix<const T>> ReadByWeights(const Resources& resources, Matrix<const T> matrix) {
  if (resources.later == nullptr) return matrix;
  return resources.later->Keep(resources, matrix);
}

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_LATER_GRADIENTS_H_
