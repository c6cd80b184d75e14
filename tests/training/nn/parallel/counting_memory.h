// Memory that counts requests, fills its blocks with NaNs, and can refuse one request.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_COUNTING_MEMORY_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_COUNTING_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "training/nn/parallel/memory.h"

namespace geminid::collectives {

// Any thread. Outlives its blocks.
class CountingMemory final : public Memory {
 public:
  // Refuses the request with this number, counted from 1; 0: refuses none.
  explicit CountingMemory(int refused = 0) : refused_(refused) {}

  // The requested bytes in use, without alignment.
  size_t in_use_bytes() const {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }
  int requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // The peak since the last call.
  size_t TakePeakBytes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(peak_, in_use_);
  }

 private:
  // Frees the bytes and updates the count.
  struct Counted {
    CountingMemory* counter = nullptr;
    Block block;
    Counted(CountingMemory* memory, Block of_heap) : counter(memory), block(std::move(of_heap)) {}
    Counted(Counted&& other) noexcept
        : counter(std::exchange(other.counter, nullptr)), block(std::move(other.block)) {}
    ~Counted() {
      if (counter != nullptr) counter->GiveBack(block.bytes());
    }
  };

  absl::StatusOr<Block> Take(size_t bytes) override {
    if (!Counts(bytes)) return absl::ResourceExhaustedError("a test refuses it");
    absl::StatusOr<Block> block = HeapMemory().Allocate("a test", bytes);
    if (!block.ok()) return block;
    std::byte* const data = block->data();
    std::memset(data, 0xFF, bytes);
    return Block(data, bytes, Counted(this, *std::move(block)));
  }

  bool Counts(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (++requests_ == refused_) return false;
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
    return true;
  }
  void GiveBack(size_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
  }

  const int refused_;
  mutable std::mutex mutex_;
  int requests_ = 0;
  size_t in_use_ = 0, peak_ = 0;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_COUNTING_MEMORY_H_
