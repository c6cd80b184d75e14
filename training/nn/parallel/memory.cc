#include "training/nn/parallel/memory.h"

#include <new>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::collectives {
namespace {

constexpr std::align_val_t kCacheLine{64};

struct Delete {
  void operator()(std::byte* data) const { ::operator delete(data, kCacheLine); }
};

class Heap final : public Memory {
  absl::StatusOr<Block> Take(size_t bytes) override {
    std::unique_ptr<std::byte, Delete> data(
        static_cast<std::byte*>(::operator new(bytes, kCacheLine, std::nothrow)));
    if (data == nullptr) return absl::ResourceExhaustedError("the heap has no room for it");
    std::byte* const there = data.get();
    return Block(there, bytes, std::move(data));
  }
};

}  // namespace

absl::StatusOr<Memory::Block> Memory::Allocate(std::string_view what, size_t bytes) {
  if (bytes == 0) return Block();
  absl::StatusOr<Block> block = Take(bytes);
  if (block.ok()) return block;
  return absl::Status(block.status().code(),
                      absl::StrCat(std::string(what), " (", base::FormatBytes(bytes), "): ",
                                   std::string(block.status().message())));
}

Memory& HeapMemory() {
  static auto* const heap = new Heap;
  return *heap;
}

}  // namespace geminid::collectives
