#ifndef GEMINID_KERNELS_RUNTIME_COMMON_BUFFERS_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// One argument of a kernel: `count` elements at `begin`, as the checks below see it.
struct Buffer {
  const void* begin;
  size_t count;
  size_t element_bytes;
  size_t alignment;

  template <typename T>
  static Buffer Of(const T* begin, size_t count) {
    return {begin, count, sizeof(T), alignof(T)};
  }
};

// Null, alignment and size of one buffer. A buffer of no elements is always valid.
inline Status CheckBuffer(const Buffer& buffer) {
  if (buffer.count == 0) return Status::kOk;
  if (buffer.begin == nullptr) return Status::kNullPointer;
  const auto address = reinterpret_cast<uintptr_t>(buffer.begin);
  if (address % buffer.alignment != 0) return Status::kMisaligned;
  if (buffer.count > (UINTPTR_MAX - address) / buffer.element_bytes) return Status::kSizeOverflow;
  return Status::kOk;
}

// True if the two buffers share a byte. Both have passed CheckBuffer.
inline bool Overlaps(const Buffer& a, const Buffer& b) {
  if (a.count == 0 || b.count == 0) return false;
  const auto a_begin = reinterpret_cast<uintptr_t>(a.begin);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.begin);
  return a_begin < b_begin + b.count * b.element_bytes &&
         b_begin < a_begin + a.count * a.element_bytes;
}

// Checks every buffer, then that no output shares bytes with an input or with another output.
// Inputs may overlap each other. Quadratic in the number of buffers, which is below ten.
inline Status CheckBuffers(std::span<const Buffer> inputs, std::span<const Buffer> outputs) {
  for (const auto& list : {inputs, outputs}) {
    for (const Buffer& buffer : list) {
      if (const Status status = CheckBuffer(buffer); status != Status::kOk) return status;
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const Buffer& input : inputs) {
      if (Overlaps(outputs[i], input)) return Status::kOverlap;
    }
    for (const Buffer& other : outputs.subspan(i + 1)) {
      if (Overlaps(outputs[i], other)) return Status::kOverlap;
    }
  }
  return Status::kOk;
}
inline Status CheckBuffers(std::initializer_list<Buffer> inputs,
                           std::initializer_list<Buffer> outputs) {
  return CheckBuffers(std::span(inputs.begin(), inputs.size()),
                      std::span(outputs.begin(), outputs.size()));
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_BUFFERS_H_
