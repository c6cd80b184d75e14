// The resources of a computation: views of matrices, scratch memory from the workspace, and
// threads.
#ifndef GEMINID_TRAINING_NN_SCRATCH_H_
#define GEMINID_TRAINING_NN_SCRATCH_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::trainer {

class ModelKernels;    // model_kernels.h
class LaterGradients;  // later_gradients.h

// Rows of `cols` elements, `stride` elements apart. Does not own them.
template <typename T>
struct Matrix {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t stride = 0;

  Matrix() = default;
  Matrix(T* first, size_t row_count, size_t col_count)
      : Matrix(first, row_count, col_count, col_count) {}
  Matrix(T* first, size_t row_count, size_t col_count, size_t row_stride)
      : data(first), rows(row_count), cols(col_count), stride(row_stride) {}
  operator Matrix<const T>() const { return {data, rows, cols, stride}; }  // NOLINT: implicit

  Matrix Rows(size_t first, size_t count) const {
    return {data + first * stride, count, cols, stride};
  }
  Matrix Cols(size_t first, size_t count) const { return {data + first, rows, count, stride}; }
  size_t size() const { return rows * cols; }  // of a dense matrix
};

// The resources of a computation. The number of threads never changes a bit.
struct Resources {
  zero::Workspace& workspace;
  const ModelKernels& math;
  kernels::ThreadPool* threads = nullptr;  // null: the calling thread alone
  // The bits of a token in a forward pass do not depend on the other tokens.
  bool rows_alone = false;
  // Backward passes postpone the weights' gradients into this object; null: they write them.
  LaterGradients* later = nullptr;
};

// A block of workspace as elements of one type.
template <typename T>
class Scratch {
 public:
  static absl::StatusOr<Scratch> Allocate(const Resources& resources, size_t count) {
    absl::StatusOr<zero::Workspace::Block> block = resources.workspace.Allocate(count * sizeof(T));
    if (!block.ok()) return block.status();
    return Scratch(std::move(block).value());
  }
  Scratch() = default;
  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  bool IsOf(const zero::Workspace& workspace) const { return block_.IsOf(workspace); }
  // Frees the bytes now.
  void Free() { zero::Workspace::Block gone = std::move(block_); }

 private:
  explicit Scratch(zero::Workspace::Block block) : block_(std::move(block)) {}
  zero::Workspace::Block block_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_SCRATCH_H_
