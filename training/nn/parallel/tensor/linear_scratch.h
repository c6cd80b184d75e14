// Memory that tensor-parallel layers need during a call, and not between calls: each call takes
// what it needs, and gives it back. layer_scratch.h says how much that is.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_SCRATCH_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_SCRATCH_H_

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/tensor/local_products.h"

namespace geminid::collectives {

// All layers of a thread share it. One thread at a time.
class LinearScratch {
 public:
  // `pool`, for the products, may be null; it and `memory` outlive this.
  explicit LinearScratch(kernels::ThreadPool* pool = nullptr, Memory& memory = HeapMemory())
      : memory_(memory), products_(pool, memory) {}

  Memory& memory() { return memory_; }
  LocalProducts& products() { return products_; }

  // Contents undefined. RESOURCE_EXHAUSTED that says `what` of a cut layer finds no room.
  absl::StatusOr<FloatBlock> Take(std::string_view what, size_t elements) {
    return FloatBlock::Allocate(memory_, what, elements);
  }

 private:
  Memory& memory_;
  LocalProducts products_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_SCRATCH_H_
