// Memory for layers that span ranks. It is counted, and requests can be refused.
#ifndef GEMINID_TRAINING_NN_PARALLEL_MEMORY_H_
#define GEMINID_TRAINING_NN_PARALLEL_MEMORY_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::collectives {

class Memory {
 public:
  // Move-only. The destructor frees the bytes.
  class Block {
   public:
    Block() = default;  // empty
    // Destroying `owner` frees the bytes. It is destroyed with the block.
    template <typename Owner>
    Block(std::byte* data, size_t bytes, Owner owner)
        : data_(data), bytes_(bytes), owner_(std::make_shared<Owner>(std::move(owner))) {}
    Block(Block&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)),
          owner_(std::move(other.owner_)) {}
    Block& operator=(Block&& other) noexcept {
      Block gone = std::move(*this);
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      owner_ = std::move(other.owner_);
      return *this;
    }
    ~Block() = default;

    std::byte* data() const { return data_; }
    size_t bytes() const { return bytes_; }

   private:
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
    std::shared_ptr<void> owner_;
  };

  virtual ~Memory() = default;

  // Allocates memory on a cache line, with undefined contents; an empty block for 0 bytes. It is
  // host memory, but for the workspace of layers on a GPU.
  // Errors begin with `what` (the purpose) and the bytes. RESOURCE_EXHAUSTED if memory is short.
  absl::StatusOr<Block> Allocate(std::string_view what, size_t bytes);

 private:
  virtual absl::StatusOr<Block> Take(size_t bytes) = 0;
};

// Heap memory that is not counted. Any thread.
Memory& HeapMemory();

// A block as elements of one type.
template <typename T>
class ElementBlock {
 public:
  static absl::StatusOr<ElementBlock> Allocate(Memory& memory, std::string_view what,
                                               size_t elements) {
    absl::StatusOr<Memory::Block> block = memory.Allocate(what, elements * sizeof(T));
    if (!block.ok()) return block.status();
    return ElementBlock(*std::move(block), elements);
  }
  ElementBlock() = default;  // of none

  std::span<T> all() const { return {data(), elements_}; }
  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  size_t size() const { return elements_; }

 private:
  ElementBlock(Memory::Block block, size_t elements)
      : block_(std::move(block)), elements_(elements) {}

  Memory::Block block_;
  size_t elements_ = 0;
};
using FloatBlock = ElementBlock<float>;

// Returns `status`. If this rank had no memory for a collective, aborts it: the other ranks, which
// wait for this rank, get ABORTED with the same message.
template <typename Ranks>
absl::Status TellIfRefused(Ranks& ranks, absl::Status status) {
  if (absl::IsResourceExhausted(status)) ranks.Abort(std::string(status.message()));
  return status;
}
// FloatBlock::Allocate; tells the other ranks if it is refused.
template <typename Ranks>
absl::StatusOr<FloatBlock> AllocateOrTellRanks(Ranks& ranks, Memory& memory, std::string_view what,
                                               size_t elements) {
  absl::StatusOr<FloatBlock> taken = FloatBlock::Allocate(memory, what, elements);
  (void)TellIfRefused(ranks, taken.status());
  return taken;
}

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_MEMORY_H_
