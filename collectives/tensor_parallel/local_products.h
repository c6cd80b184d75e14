// The products of one rank's blocks, with the workspace they need.
#ifndef GEMINID_COLLECTIVES_TENSOR_PARALLEL_LOCAL_PRODUCTS_H_
#define GEMINID_COLLECTIVES_TENSOR_PARALLEL_LOCAL_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "collectives/tensor_parallel/tensor_grid.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/common/workspace.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::collectives {

enum class Into : uint8_t { kOverwrite, kAdd };

// Shapes are those of the blocks. One thread at a time. INTERNAL: a kernel refused its arguments.
// The workspace grows to the largest product's.
class LocalProducts {
 public:
  // `pool` may be null and outlives this.
  explicit LocalProducts(kernels::ThreadPool* pool) : pool_(pool) {}

  kernels::ThreadPool* pool() const { return pool_; }

  // y (+)= x w^T.
  absl::Status Forward(const LinearShape& shape, const float* x, const float* w, float* y,
                       Into into);
  // dx (+)= dy w.
  absl::Status BackwardInput(const LinearShape& shape, const float* dy, const float* w, float* dx,
                             Into into);
  // dw (+)= dy^T x.
  absl::Status BackwardWeight(const LinearShape& shape, const float* dy, const float* x, float* dw,
                              Into into);
  // db = the sum of dy's rows.
  absl::Status BackwardBias(size_t rows, size_t columns, const float* dy, float* db);

  // Called where each product of two matrices begins: tests see what runs beside it.
  void Watch(std::function<void()> watcher) { watcher_ = std::move(watcher); }

  // At least so many bytes on a cache line, for another kernel; until the next call of anything.
  void* Workspace(size_t bytes) { return workspace_.Bytes(bytes); }

 private:
  absl::Status Multiply(const kernels::MatmulShape& shape, const float* a, const float* b,
                        float* c);

  kernels::ThreadPool* pool_;
  kernels::Workspace workspace_;
  std::function<void()> watcher_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TENSOR_PARALLEL_LOCAL_PRODUCTS_H_
