// The kernels as the model calls them: on views of matrices, with scratch from the workspace, and
// with errors as absl::Status. T is float or kernels::BFloat16, the type of weights and
// activations.
#ifndef GEMINID_TOOLS_TRAINER_COMPUTE_H_
#define GEMINID_TOOLS_TRAINER_COMPUTE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/common/bfloat16.h"
#include "tools/trainer/parameter_source.h"
#include "tools/trainer/parameters.h"

namespace geminid::trainer {

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

// The matrix of a linear layer in -> out, or of some of its inputs or outputs.
template <typename T>
struct LinearView {
  T* weight = nullptr;
  T* bias = nullptr;  // nullable
  Layout layout = Layout::kOutIn;
  size_t in = 0;
  size_t out = 0;
  size_t stride = 0;

  LinearView Outputs(size_t first, size_t count) const {
    LinearView part = *this;
    part.weight += first * (layout == Layout::kOutIn ? stride : 1);
    if (bias != nullptr) part.bias += first;
    part.out = count;
    return part;
  }
  // The bias is added once, not per part: it stays behind.
  LinearView Inputs(size_t first, size_t count) const {
    LinearView part = *this;
    part.weight += first * (layout == Layout::kOutIn ? 1 : stride);
    part.bias = nullptr;
    part.in = count;
    return part;
  }
};

// A block of workspace as elements of one type.
template <typename T>
class Scratch {
 public:
  static absl::StatusOr<Scratch> Allocate(zero::Workspace& workspace, size_t count) {
    absl::StatusOr<zero::Workspace::Block> block = workspace.Allocate(count * sizeof(T));
    if (!block.ok()) return block.status();
    return Scratch(std::move(block).value());
  }
  Scratch() = default;
  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  // Gives the bytes back now.
  void Free() { zero::Workspace::Block gone = std::move(block_); }

 private:
  explicit Scratch(zero::Workspace::Block block) : block_(std::move(block)) {}
  zero::Workspace::Block block_;
};

// Parameters of the operator that `use` holds.
template <typename T>
const T* WeightOf(const ParameterUse& use, ParameterId id) {
  return reinterpret_cast<const T*>(use.Weight(id));
}
template <typename T>
T* GradientOf(ParameterUse& use, ParameterId id) {
  return reinterpret_cast<T*>(use.Gradient(id));
}
template <typename T>
LinearView<const T> WeightOf(const ParameterUse& use, const LinearPlace& place);
template <typename T>
LinearView<T> GradientOf(ParameterUse& use, const LinearPlace& place);
absl::Status GradientsWritten(ParameterUse& use, std::span<const ParameterId> ids);

// y = x W + b, or y += x W + b. Out is T or float.
template <typename T, typename Out>
absl::Status Forward(zero::Workspace& workspace, Matrix<const T> x, const LinearView<const T>& w,
                     Matrix<Out> y, bool accumulate = false);

// dx = dy W^T, or dx += dy W^T.
template <typename T, typename Out>
absl::Status BackwardInput(zero::Workspace& workspace, Matrix<const T> dy,
                           const LinearView<const T>& w, Matrix<Out> dx, bool accumulate = false);

// db = the sum of the rows of dy, which is dense.
template <typename T>
absl::Status BackwardBias(zero::Workspace& workspace, Matrix<const T> dy, T* db);

// dW = x^T dy, and the gradient of the bias if there is one.
template <typename T>
absl::Status BackwardWeight(zero::Workspace& workspace, Matrix<const T> dy, Matrix<const T> x,
                            const LinearView<T>& dw, bool accumulate = false);

// out = in, rounded to T. Dense. For T = float a copy.
absl::Status Round(const float* in, size_t count, kernels::BFloat16* out);
absl::Status Round(const float* in, size_t count, float* out);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_COMPUTE_H_
