// The parts in which a library computes attention, so that its workspace stays bounded. Pure: the
// parts depend on the shape alone. If they depended on free memory, results would depend on the
// arena.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_PARTS_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_PARTS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/model/attention/attention.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// The most workspace of one part. Such a part has more blocks of queries than a GPU has
// multiprocessors.
inline constexpr uint64_t kAttentionPartBytesMax = uint64_t{256} << 20;

// Each part has whole sequences with all heads, or some key/value heads of one sequence.
struct AttentionParts {
  uint64_t batch = 0;     // sequences of a part; divides shape.batch; 0: not even one head fits
  uint64_t kv_heads = 0;  // of a part; divides shape.kv_heads
  uint64_t bytes = 0;     // the expected workspace of a part
};

// The workspace of a deterministic backward pass in 16 bits: the gradients of the scores and, if
// heads share keys, the gradients of each head's keys and values.
inline uint64_t AttentionLibraryBytes(const AttentionShape& shape, uint64_t batch,
                                      uint64_t kv_heads) {
  constexpr uint64_t kQueries = 64, kKeys = 128, kElement = 2, kSpare = 4096;
  const uint64_t group = shape.heads / shape.kv_heads;
  const uint64_t scores = RoundUpTo(shape.sequence, kQueries) * RoundUpTo(shape.sequence, kKeys);
  const uint64_t keys =
      group > 1 ? 2 * RoundUpTo(shape.sequence, kKeys) * RoundUpTo(shape.head_dim, 16) : 0;
  return batch * kv_heads * group * (scores + keys) * kElement + kSpare;
}

// `shape` has at least one head and one sequence.
inline AttentionParts PartsOfAttention(const AttentionShape& shape) {
  const auto largest = [](uint64_t whole, const auto& bytes_of) {
    for (uint64_t part = whole; part > 0; --part) {
      if (whole % part == 0 && bytes_of(part) <= kAttentionPartBytesMax) return part;
    }
    return uint64_t{0};
  };
  const uint64_t all = shape.kv_heads;
  if (const uint64_t batch = largest(
          shape.batch, [&](uint64_t part) { return AttentionLibraryBytes(shape, part, all); });
      batch > 0) {
    return {batch, all, AttentionLibraryBytes(shape, batch, all)};
  }
  const uint64_t heads =
      largest(all, [&](uint64_t part) { return AttentionLibraryBytes(shape, 1, part); });
  if (heads == 0) return {};
  return {1, heads, AttentionLibraryBytes(shape, 1, heads)};
}

// The bytes that the library's test needs for one part, beside the workspace: q, k, v, dout, and
// the results.
inline uint64_t AttentionTestBytes(const AttentionShape& shape, const AttentionParts& parts) {
  constexpr uint64_t kOfQueries = 4, kOfKeys = 4, kElement = 2, kSpare = 16 * 256;
  const uint64_t columns = (kOfQueries * shape.heads + kOfKeys * shape.kv_heads) * shape.head_dim;
  return parts.batch * shape.sequence * (columns * kElement + shape.heads * sizeof(float)) + kSpare;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_ATTENTION_PARTS_H_
