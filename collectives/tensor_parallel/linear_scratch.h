// Memory that a tensor-parallel layer needs during a call, and not between calls: all layers of a
// thread share it.
#ifndef GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_SCRATCH_H_
#define GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_SCRATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/tensor_parallel/local_products.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::collectives {

// What of a call lies there. Of linear layers: X and W of this step and the next in 2D, and where
// these are not needed partial sums of the backward; in 3D X and W gathered, and Y in the place of
// the next X. Of other layers: what they gather or have not added up yet, numbers for each row, and
// what lies within a pair of layers; queries, keys and values of sequences that are cut, and their
// gradients.
enum class Scratch : uint8_t {
  kX,
  kNextX,
  kW,
  kNextW,
  kPartial,
  kBias,
  kRows,
  kInner,
  kInnerGradient,
  kQkv,
  kQkvGradient
};
inline constexpr int kScratches = 11;

// Grows to the largest call, and stays. One thread at a time.
class LinearScratch {
 public:
  // `pool`, for the products, may be null and outlives this.
  explicit LinearScratch(kernels::ThreadPool* pool = nullptr) : products_(pool) {}

  LocalProducts& products() { return products_; }

  // Contents undefined. The address holds until the same part is asked for again.
  std::span<float> Floats(Scratch part, size_t elements) {
    std::vector<float>& floats = floats_[static_cast<size_t>(part)];
    if (floats.size() < elements) floats.resize(elements);
    return std::span(floats).first(elements);
  }

 private:
  LocalProducts products_;
  std::array<std::vector<float>, kScratches> floats_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TENSOR_PARALLEL_LINEAR_SCRATCH_H_
