// A product of fp32 matrices with long rows: each thread copies the operands of a block of the
// product and multiplies the copies. Internal to matmul.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_PACKED_H_
#define GEMINID_KERNELS_MODEL_MATMUL_PACKED_H_

#include <cstddef>

#include "kernels/model/matmul/packing.h"
#include "kernels/model/matmul/plan.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::kernels {

class PackedProduct {
 public:
  struct Operands {
    const float* a;
    const float* b;
    const float* bias;
    float* c;
  };

  // `shape` has its strides filled in. Throws as Plan does.
  explicit PackedProduct(const MatmulShape& shape);

  // Bytes of workspace. A thread has a block of A, one of B and the scratchpad of their product.
  size_t bytes(size_t threads) const { return threads * of_thread_; }

  Status Run(const Operands& operands, void* workspace, ThreadPool* pool) const;

 private:
  struct Block {
    Granule rows, cols, depth;
  };
  struct Held;  // the blocks that a thread has copied

  PlanKey KeyOf(const Block& block) const;
  void Multiply(const Operands& operands, const Block& block, char* own, Held* held) const;

  MatmulShape shape_;
  Packing packing_;
  PackedTiles tiles_;
  size_t a_stride_;
  size_t b_stride_;
  size_t b_offset_;
  size_t scratchpad_offset_;
  size_t of_thread_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_PACKED_H_
