// Matrix products of one rank's blocks.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_LOCAL_PRODUCTS_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_LOCAL_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/model/matmul/matmul.h"
#include "training/nn/parallel/layer_math.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

enum class OutputMode : uint8_t { kOverwrite, kAdd };

// Shapes are those of the blocks. One thread at a time. Errors are those of LayerMath.
class LocalProducts {
 public:
  // `math` outlives this object.
  explicit LocalProducts(LayerMath& math) : math_(math) {}

  // Operands are T, float or kernels::BFloat16; results are fp32.
  // y (+)= x w^T.
  template <typename T>
  absl::Status Forward(const LinearShape& shape, const T* x, const T* w, float* y, OutputMode into);
  // dx (+)= dy w.
  template <typename T>
  absl::Status BackwardInput(const LinearShape& shape, const T* dy, const T* w, float* dx,
                             OutputMode into);
  // dw (+)= dy^T x.
  template <typename T>
  absl::Status BackwardWeight(const LinearShape& shape, const T* dy, const T* x, float* dw,
                              OutputMode into);
  // db = the sum of dy's rows.
  template <typename T>
  absl::Status BackwardBias(size_t rows, size_t columns, const T* dy, float* db);

  // `watcher` is called at the begin of each product of two matrices, so that tests see which
  // transfers run at the same time.
  void Watch(std::function<void()> watcher) { watcher_ = std::move(watcher); }

 private:
  template <typename T>
  absl::Status Multiply(const kernels::MatmulShape& shape, const T* a, const T* b, float* c);

  LayerMath& math_;
  std::function<void()> watcher_;
};

// The workspace that each product takes on the host, from the memory, while it runs.
struct ProductBytes {
  size_t forward = 0;
  size_t backward_input = 0;
  size_t backward_weight = 0;
  size_t backward_bias = 0;
};
template <typename T>
ProductBytes ProductBytesOf(const LinearShape& shape, size_t threads);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LOCAL_PRODUCTS_H_
