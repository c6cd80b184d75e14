// The matrix products of an MLP on rows: y = W2 activation(W1 x), or SwiGLU with W3 x. They work on
// some columns at a time, which changes no sum over rows.
#ifndef GEMINID_TRAINING_TRANSFORMER_MLP_COLUMNS_H_
#define GEMINID_TRAINING_TRANSFORMER_MLP_COLUMNS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "training/nn/compute.h"

namespace geminid::trainer {

// Where what the activation reads is kept of the first `rows` rows: in pieces of columns, one after
// the other, each [rows, columns]. Null: nowhere. `up` is null without a gate.
template <typename T>
struct KeptColumns {
  T* input = nullptr;
  T* up = nullptr;
  size_t rows = 0;
  explicit operator bool() const { return input != nullptr; }
};

// What each row's output is multiplied by, and where the gradients of that are added; host memory.
// Null: by nothing.
struct RowWeights {
  const float* weights = nullptr;
  float* gradients = nullptr;
};

// sum += the MLP of x, without its last bias. x is dense. Fills `kept`, of as many rows or fewer.
template <typename T>
absl::Status MlpForward(const Resources& resources, const MlpMatrices& places,
                        const ParameterUse& use, size_t piece, Matrix<const T> x, Matrix<float> sum,
                        const KeptColumns<T>& kept);

// dx, which is overwritten unless `adds`, and the gradients of the matrices and all biases but the
// last, from the gradient of what each row's output became when it was weighed. What is kept is
// used up; rows of x and dy beyond it are zeros.
template <typename T>
absl::Status MlpBackward(const Resources& resources, const MlpMatrices& places, ParameterUse& use,
                         size_t piece, Matrix<const T> x, Matrix<const T> dy, Matrix<float> dx,
                         const KeptColumns<T>& kept, const RowWeights& weights = {},
                         bool adds = false);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_MLP_COLUMNS_H_
