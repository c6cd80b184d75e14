// Scratch memory for kernels.
#ifndef GEMINID_KERNELS_RUNTIME_COMMON_WORKSPACE_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_WORKSPACE_H_

#include <array>
#include <cstddef>
#include <vector>

namespace geminid::kernels {

// Aligned to 64 bytes, as kernels need it. Grows to the largest request and never shrinks. One
// thread at a time.
class Workspace {
 public:
  // Contents undefined. Valid until the next call.
  void* Bytes(size_t bytes) {
    const size_t lines = (bytes + sizeof(Line) - 1) / sizeof(Line);
    if (lines_.size() < lines) lines_.resize(lines);
    return lines_.data();
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> lines_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_WORKSPACE_H_
