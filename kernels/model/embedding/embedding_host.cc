#include "kernels/model/embedding/embedding.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/embedding/embedding_host.cc"
#include <algorithm>
#include <cstring>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/model/embedding/checks.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"

#ifndef GEMINID_KERNELS_EMBEDDING_SCATTER_
#define GEMINID_KERNELS_EMBEDDING_SCATTER_
namespace geminid::kernels {

// Tokens sorted by table row, in token order within a row: the tokens of row r are
// order[begin[r]] .. order[begin[r+1] - 1].
struct RowTokens {
  uint64_t* begin;
  uint64_t* order;
};

}  // namespace geminid::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void EmbeddingForwardLoop(const EmbeddingShape& shape, const int32_t* ids, const T* table,
                          const T* position_table, size_t sequence, T* y) {
  const size_t hidden = shape.hidden;
  for (size_t t = 0; t < shape.tokens; ++t) {
    const size_t row = static_cast<size_t>(ids[t]) - shape.first_row;  // wraps when below
    const bool has_row = row < shape.rows;
    const T* from = table + (has_row ? row * hidden : 0);
    const T* position =
        position_table == nullptr ? nullptr : position_table + t % sequence * hidden;
    for (size_t i = 0; i < hidden; i += kWidth) {
      const size_t n = hidden - i;
      F32x16 v = has_row ? LoadN(from + i, n) : Set(0.0F);
      if (position != nullptr) v = v + LoadN(position + i, n);
      StoreN(v, y + t * hidden + i, n);
    }
  }
}

// The sum of `n` columns, from `dy` on, of the tokens [begin, end) of the order.
template <typename T>
HWY_INLINE F32x16 ChunkSum(const RowTokens& tokens, size_t begin, size_t end, const T* dy,
                           size_t hidden, size_t n) {
  F32x16 sum = Set(0.0F);
  for (size_t k = begin; k < end; ++k) sum = sum + LoadN(dy + tokens.order[k] * hidden, n);
  return sum;
}

template <typename T>
void ScatterLoop(const EmbeddingShape& shape, const RowTokens& tokens, const T* dy, T* dtable,
                 bool accumulate) {
  const size_t hidden = shape.hidden;
  for (size_t r = 0; r < shape.rows; ++r) {
    const size_t begin = tokens.begin[r];
    const size_t end = tokens.begin[r + 1];
    if (begin == end && accumulate) continue;
    T* out = dtable + r * hidden;
    for (size_t i = 0; i < hidden; i += kWidth) {
      const size_t n = hidden - i;
      F32x16 sum = Set(0.0F);
      for (size_t chunk = begin; chunk < end; chunk += kEmbeddingChunkTokens) {
        sum = sum + ChunkSum(tokens, chunk, std::min(chunk + kEmbeddingChunkTokens, end), dy + i,
                             hidden, n);
      }
      StoreN(accumulate ? LoadN(out + i, n) + sum : sum, out + i, n);
    }
  }
}

template <typename T>
void PositionLoop(size_t batch, size_t sequence, size_t hidden, const T* dy, T* dpositions,
                  bool accumulate) {
  const size_t count = sequence * hidden;
  for (size_t i = 0; i < count; i += kWidth) {
    const size_t n = count - i;
    F32x16 sum = Set(0.0F);
    for (size_t b = 0; b < batch; ++b) sum = sum + LoadN(dy + b * count + i, n);
    StoreN(accumulate ? LoadN(dpositions + i, n) + sum : sum, dpositions + i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

namespace {

// Counting sort, stable.
RowTokens SortTokens(const EmbeddingShape& shape, const int32_t* ids, void* workspace) {
  RowTokens tokens;
  tokens.begin = static_cast<uint64_t*>(workspace);
  tokens.order = tokens.begin + shape.rows + 1;
  std::memset(tokens.begin, 0, (shape.rows + 1) * sizeof(uint64_t));
  const auto row_of = [&](size_t t) { return static_cast<size_t>(ids[t]) - shape.first_row; };
  for (size_t t = 0; t < shape.tokens; ++t) {
    if (row_of(t) < shape.rows) ++tokens.begin[row_of(t)];
  }
  uint64_t total = 0;
  for (size_t r = 0; r <= shape.rows; ++r) {
    const uint64_t count = tokens.begin[r];
    total += count;
    tokens.begin[r] = total;  // the end of row r; placing from the back makes it the begin
  }
  for (size_t t = shape.tokens; t-- > 0;) {
    if (row_of(t) < shape.rows) tokens.order[--tokens.begin[row_of(t)]] = t;
  }
  return tokens;
}

}  // namespace

template <typename T>
Status EmbeddingForward(const EmbeddingShape& shape, const int32_t* ids, const T* table,
                        const T* position_table, size_t sequence, T* y) {
  const Status status =
      CheckEmbeddingForward(shape, ids, Ids::kReadable, table, position_table, sequence, y);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(EmbeddingForwardLoop<T>)(shape, ids, table, position_table, sequence, y);
  return Status::kOk;
}

size_t EmbeddingWorkspaceBytes(const EmbeddingShape& shape) {
  return RoundUpTo(sizeof(uint64_t) * (shape.rows + 1 + shape.tokens), kWorkspaceAlignment);
}

template <typename T>
Status EmbeddingBackward(const EmbeddingShape& shape, const int32_t* ids, const T* dy, T* dtable,
                         bool accumulate, void* workspace, size_t workspace_bytes) {
  size_t table_count = 0;
  Status status = CheckEmbeddingBackward(shape, ids, Ids::kReadable, dy, dtable, &table_count);
  if (status != Status::kOk) return status;
  status = CheckWorkspace(workspace, workspace_bytes, EmbeddingWorkspaceBytes(shape));
  if (status != Status::kOk) return status;
  const RowTokens tokens = SortTokens(shape, ids, workspace);
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(ScatterLoop<T>)(shape, tokens, dy, dtable, accumulate);
  return Status::kOk;
}

template <typename T>
Status PositionEmbeddingBackward(size_t batch, size_t sequence, size_t hidden, const T* dy,
                                 T* dpositions, bool accumulate) {
  size_t positions = 0;
  const Status status = CheckPositionBackward(batch, sequence, hidden, dy, dpositions, &positions);
  if (status != Status::kOk) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(PositionLoop<T>)(batch, sequence, hidden, dy, dpositions, accumulate);
  return Status::kOk;
}

template Status EmbeddingForward(const EmbeddingShape&, const int32_t*, const float*, const float*,
                                 size_t, float*);
template Status EmbeddingForward(const EmbeddingShape&, const int32_t*, const BFloat16*,
                                 const BFloat16*, size_t, BFloat16*);
template Status EmbeddingBackward(const EmbeddingShape&, const int32_t*, const float*, float*, bool,
                                  void*, size_t);
template Status EmbeddingBackward(const EmbeddingShape&, const int32_t*, const BFloat16*, BFloat16*,
                                  bool, void*, size_t);
template Status PositionEmbeddingBackward(size_t, size_t, size_t, const float*, float*, bool);
template Status PositionEmbeddingBackward(size_t, size_t, size_t, const BFloat16*, BFloat16*, bool);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
