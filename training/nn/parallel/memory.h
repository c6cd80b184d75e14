// The memory that layers over ranks work in. It is counted, and a request for it can be refused.
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
  // Move-only; its bytes go back when it is destroyed.
  class Block {
   public:
    Block() = default;  // of no bytes
    // `owner` is what gives them back: it is destroyed with the block.
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

  // Host memory, on a cache line, contents undefined; nothing for 0 bytes. An error begins with
  // `what` it is for and the bytes; RESOURCE_EXHAUSTED where there is no room.
  absl::StatusOr<Block> Allocate(std::string_view what, size_t bytes);

 private:
  virtual absl::StatusOr<Block> Take(size_t bytes) = 0;
};

// Of users that count nothing. Any thread.
Memory& HeapMemory();

// A block as floats.
class FloatBlock {
 public:
  static absl::StatusOr<FloatBlock> Allocate(Memory& memory, std::string_view what,
                                             size_t elements);
  FloatBlock() = default;  // of none

  std::span<float> all() const { return {data(), elements_}; }
  float* data() const { return reinterpret_cast<float*>(block_.data()); }
  size_t size() const { return elements_; }

 private:
  FloatBlock(Memory::Block block, size_t elements)
      : block_(std::move(block)), elements_(elements) {}

  Memory::Block block_;
  size_t elements_ = 0;
};

// Hands on how this rank's part of a call ended. Where it had no memory for it, the others, which
// wait for it, get ABORTED with its words.
template <typename Ranks>
absl::Status TellIfRefused(Ranks& ranks, absl::Status status) {
  if (absl::IsResourceExhausted(status)) ranks.Abort(std::string(status.message()));
  return status;
}
// As FloatBlock::Allocate; where it is refused the others are told.
template <typename Ranks>
absl::StatusOr<FloatBlock> TakeOrTell(Ranks& ranks, Memory& memory, std::string_view what,
                                      size_t elements) {
  absl::StatusOr<FloatBlock> taken = FloatBlock::Allocate(memory, what, elements);
  (void)TellIfRefused(ranks, taken.status());
  return taken;
}

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_MEMORY_H_
