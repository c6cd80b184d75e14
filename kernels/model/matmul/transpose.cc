#include "kernels/model/matmul/transpose.h"

#include <cstring>

namespace geminid::kernels {
namespace {

constexpr size_t kEdge = 4;
// 16-byte vectors, which every processor has. Wider ones gain nothing: stores are the bottleneck.
using Four __attribute__((vector_size(kEdge * sizeof(float)))) = float;

Four LoadFour(const float* from) {
  Four values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}

void Store(const Four& values, float* to) { std::memcpy(to, &values, sizeof(values)); }

// Transposes a block of kEdge x kEdge.
void TransposeBlock(const float* from, size_t from_stride, float* to, size_t to_stride) {
  const Four a = LoadFour(from), b = LoadFour(from + from_stride);
  const Four c = LoadFour(from + 2 * from_stride), d = LoadFour(from + 3 * from_stride);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  Store(__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), to);
  Store(__builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7), to + to_stride);
  Store(__builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), to + 2 * to_stride);
  Store(__builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7), to + 3 * to_stride);
}

}  // namespace

void TransposeFloats(const MatrixStorage& storage, const float* from, float* to, size_t to_stride) {
  const auto [rows, cols, stride] = storage;
  const size_t whole_rows = rows / kEdge * kEdge, whole_cols = cols / kEdge * kEdge;
  // Reads along a few rows of `from`. Reading down the columns would load lines that are a power of
  // two apart. A cache has too few ways for them, so lines would be evicted before they are read.
  for (size_t r = 0; r < whole_rows; r += kEdge) {
    for (size_t c = 0; c < whole_cols; c += kEdge) {
      TransposeBlock(from + r * stride + c, stride, to + c * to_stride + r, to_stride);
    }
  }
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c) {
      to[c * to_stride + r] = from[r * stride + c];
    }
  }
}

}  // namespace geminid::kernels
