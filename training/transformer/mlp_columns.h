// The matrix products of an MLP on rows: y = W2 activation(W1 x), or SwiGLU with W3 x. Some columns
// are computed at a time, which changes no sum over rows.
#ifndef GEMINID_TRAINING_TRANSFORMER_MLP_COLUMNS_H_
#define GEMINID_TRAINING_TRANSFORMER_MLP_COLUMNS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "training/nn/compute.h"
#include "training/nn/parallel/memory.h"

namespace geminid::trainer {

// Where the inputs of the activation are kept for the first `rows` rows: groups of columns one
// after another, each [rows, columns]. Null: they are not kept. Without a gate `up` is null.
template <typename T>
struct MlpColumnActivations {
  T* input = nullptr;
  T* up = nullptr;
  size_t rows = 0;
  explicit operator bool() const { return input != nullptr; }
};

// The factor of each row's output, and an array to which the factors' gradients are added. Both are
// in host memory. Null: no factors.
struct RowWeights {
  const float* weights = nullptr;
  float* gradients = nullptr;
  // Host memory for copies of a GPU's values. Set if `weights` is.
  collectives::Memory* memory = nullptr;
};

// sum += the MLP of x, without its last bias. x is dense. Fills `kept`, which may have fewer rows.
template <typename T>
absl::Status MlpForward(const Resources& resources, const MlpMatrices& places,
                        const ParameterUse& use, size_t piece, Matrix<const T> x, Matrix<float> sum,
                        const MlpColumnActivations<T>& kept);

// Writes dx, or adds to it if `adds`, and the gradients of the matrices and of all biases but the
// last. `dy` is the gradient of each row's weighted output. Overwrites the kept values; the rows of
// x and dy beyond them must be zero.
template <typename T>
absl::Status MlpBackward(const Resources& resources, const MlpMatrices& places, ParameterUse& use,
                         size_t piece, Matrix<const T> x, Matrix<const T> dy, Matrix<float> dx,
                         const MlpColumnActivations<T>& kept, const RowWeights& weights = {},
                         bool adds = false);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_MLP_COLUMNS_H_
