// Checks of arguments beyond those of kernels/runtime/common/buffers.h.
#ifndef GEMINID_KERNELS_RUNTIME_SIMD_ARGUMENTS_H_
#define GEMINID_KERNELS_RUNTIME_SIMD_ARGUMENTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

// The alignment of workspaces, whose sizes are rounded up to it: whole cache lines.
inline constexpr size_t kWorkspaceAlignment = 64;

inline size_t RoundUpTo(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Bytes of an fp32 row of `cols` elements, padded to whole vectors.
inline size_t FloatRowBytes(size_t cols) {
  return RoundUpTo(cols * sizeof(float), kWorkspaceAlignment);
}

// a b, or kSizeOverflow.
inline Status CheckedProduct(size_t a, size_t b, size_t* product) {
  return __builtin_mul_overflow(a, b, product) ? Status::kSizeOverflow : Status::kOk;
}

// An output may be the same array as one of `inputs`, which its kernel reads element by element
// before it writes. Otherwise the output must be disjoint from all of them.
inline Status CheckInPlace(const Buffer& output, std::initializer_list<Buffer> inputs) {
  if (const Status status = CheckBuffer(output); status != Status::kOk) return status;
  for (const Buffer& input : inputs) {
    if (const Status status = CheckBuffer(input); status != Status::kOk) return status;
    if (input.begin != output.begin && Overlaps(output, input)) return Status::kOverlap;
  }
  return Status::kOk;
}

// A workspace of at least `needed_bytes`, on a cache line.
inline Status CheckWorkspace(const void* workspace, size_t workspace_bytes, size_t needed_bytes) {
  if (needed_bytes == 0) return Status::kOk;
  if (workspace == nullptr) return Status::kNullPointer;
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return Status::kMisaligned;
  }
  return workspace_bytes < needed_bytes ? Status::kInvalidParameter : Status::kOk;
}

inline bool IsFiniteNonNegative(float value) { return std::isfinite(value) && value >= 0.0F; }

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_ARGUMENTS_H_
