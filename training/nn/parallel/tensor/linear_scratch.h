// Memory that tensor-parallel layers need during a call, but not between calls. Each call allocates
// and frees it. layer_scratch.h has the sizes.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_SCRATCH_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_SCRATCH_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/host_layer_math.h"
#include "training/nn/parallel/layer_math.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/tensor/local_products.h"

namespace geminid::collectives {

// All layers of a thread share this object. One thread at a time.
class LinearScratch {
 public:
  // For the host. `pool` is for the products and may be null. `pool` and `memory` outlive this
  // object.
  explicit LinearScratch(kernels::ThreadPool* pool = nullptr, Memory& memory = HeapMemory())
      : of_host_(MakeHostLayerMath(pool, memory)),
        memory_(memory),
        math_(*of_host_),
        products_(math_) {}
  // For any device: `memory` is where `math` computes. Both outlive this object.
  LinearScratch(LayerMath& math, Memory& memory) : memory_(memory), math_(math), products_(math_) {}
  LinearScratch(const LinearScratch&) = delete;
  LinearScratch& operator=(const LinearScratch&) = delete;

  Memory& memory() { return memory_; }
  LayerMath& math() { return math_; }
  LayerPlace place() { return {math_, memory_}; }
  LocalProducts& products() { return products_; }

  // Contents undefined. RESOURCE_EXHAUSTED that says `what` of a cut layer finds no room.
  template <typename T = float>
  absl::StatusOr<ElementBlock<T>> Take(std::string_view what, size_t elements) {
    return ElementBlock<T>::Allocate(memory_, what, elements);
  }

 private:
  const std::unique_ptr<LayerMath> of_host_;  // null: another device computes
  Memory& memory_;
  LayerMath& math_;
  LocalProducts products_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_LINEAR_SCRATCH_H_
