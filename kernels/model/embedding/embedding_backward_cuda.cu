// The gradient of the table. A stable sort orders the tokens by row. Then each row adds up its
// tokens in the order and the chunks of the host. Positions are computed, so no atomics are needed.
#include <bit>

#include "kernels/model/embedding/checks.h"
#include "kernels/model/embedding/embedding_cuda.h"
#include "kernels/runtime/cuda/elementwise.cuh"
#include "kernels/runtime/cuda/row_pack.cuh"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace cuda {

inline constexpr unsigned kDigitBits = 9;  // two passes for vocabularies of up to 2^18
inline constexpr unsigned kDigits = 1U << kDigitBits;
inline constexpr unsigned kTileTokens = 1024;
inline constexpr unsigned kChunk = kEmbeddingChunkTokens;

// The sort key of a token: its row of the table, or `rows` if its id is no row of the table.
struct RowsOfTokens {
  __device__ uint64_t RowOf(uint64_t token) const {
    const uint64_t row = static_cast<uint64_t>(ids[token]) - first_row;  // wraps when below
    return row < rows ? row : rows;
  }

  const int32_t* ids;
  uint64_t first_row;
  uint64_t rows;
  uint64_t tokens;
};

// One pass of a radix sort, least digit first. A block has a tile of tokens and one thread per
// value of the digit, which finds the tokens with this digit in their order.
struct DigitPass {
  static constexpr unsigned kNone = kDigits;

  __device__ uint32_t TokenAt(uint64_t at) const {
    return from == nullptr ? static_cast<uint32_t>(at) : from[at];
  }
  __device__ unsigned DigitOf(uint32_t token) const {
    return static_cast<unsigned>(rows.RowOf(token) >> shift) % kDigits;
  }

  RowsOfTokens rows;
  const uint32_t* from;  // the order so far; null: token order
  unsigned shift;
};

// counts[tile][digit]
struct CountDigits {
  static constexpr unsigned kThreads = kDigits;

  __device__ void Run() const {
    __shared__ uint16_t digits[kTileTokens];
    const uint64_t begin = static_cast<uint64_t>(blockIdx.x) * kTileTokens;
    for (unsigned i = threadIdx.x; i < kTileTokens; i += kThreads) {
      const bool exists = begin + i < pass.rows.tokens;
      digits[i] =
          static_cast<uint16_t>(exists ? pass.DigitOf(pass.TokenAt(begin + i)) : DigitPass::kNone);
    }
    __syncthreads();
    uint32_t count = 0;
#pragma unroll 8
    for (unsigned i = 0; i < kTileTokens; ++i) count += digits[i] == threadIdx.x ? 1 : 0;
    counts[static_cast<uint64_t>(blockIdx.x) * kDigits + threadIdx.x] = count;
  }

  DigitPass pass;
  uint32_t* counts;
};
GEMINID_KERNEL(geminid_embedding_count_digits, CountDigits);

// One block turns counts into the first position of each tile's tokens with each digit.
struct PlaceDigits {
  static constexpr unsigned kThreads = kDigits;

  __device__ void Run() const {
    __shared__ uint32_t ends[kDigits];
    const unsigned digit = threadIdx.x;
    uint32_t total = 0;
#pragma unroll 8
    for (uint64_t tile = 0; tile < tiles; ++tile) total += counts[tile * kDigits + digit];
    ends[digit] = total;
    __syncthreads();
    for (unsigned distance = 1; distance < kDigits; distance *= 2) {
      const uint32_t before = digit >= distance ? ends[digit - distance] : 0;
      __syncthreads();
      ends[digit] += before;
      __syncthreads();
    }
    uint32_t place = ends[digit] - total;
    for (uint64_t tile = 0; tile < tiles; ++tile) {
      uint32_t* const at = counts + tile * kDigits + digit;
      const uint32_t count = *at;
      *at = place;
      place += count;
    }
  }

  uint32_t* counts;
  uint64_t tiles;
};
GEMINID_KERNEL(geminid_embedding_place_digits, PlaceDigits);

struct MoveTokens {
  static constexpr unsigned kThreads = kDigits;

  __device__ void Run() const {
    __shared__ uint16_t digits[kTileTokens];
    __shared__ uint32_t tile[kTileTokens];
    const uint64_t begin = static_cast<uint64_t>(blockIdx.x) * kTileTokens;
    for (unsigned i = threadIdx.x; i < kTileTokens; i += kThreads) {
      const bool exists = begin + i < pass.rows.tokens;
      tile[i] = exists ? pass.TokenAt(begin + i) : 0;
      digits[i] = static_cast<uint16_t>(exists ? pass.DigitOf(tile[i]) : DigitPass::kNone);
    }
    __syncthreads();
    uint32_t place = places[static_cast<uint64_t>(blockIdx.x) * kDigits + threadIdx.x];
#pragma unroll 8
    for (unsigned i = 0; i < kTileTokens; ++i) {
      if (digits[i] == threadIdx.x) to[place++] = tile[i];
    }
  }

  DigitPass pass;
  const uint32_t* places;
  uint32_t* to;
};
GEMINID_KERNEL(geminid_embedding_move_tokens, MoveTokens);

// starts[at]: the first position in `order` with the same row as the position `at`.
struct FindStarts {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    const uint64_t at = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (at >= rows.tokens) return;
    const uint64_t row = rows.RowOf(order[at]);
    uint64_t low = 0;
    for (uint64_t high = at; low < high;) {  // the first whose row is not less lies in [low, high]
      const uint64_t middle = (low + high) / 2;
      if (rows.RowOf(order[middle]) < row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    starts[at] = static_cast<uint32_t>(low);
  }

  RowsOfTokens rows;
  const uint32_t* order;
  uint32_t* starts;
};
GEMINID_KERNEL(geminid_embedding_find_starts, FindStarts);

inline constexpr unsigned kSumThreads = 128;
inline constexpr unsigned kSumBlockColumns = kSumThreads * kRowVector;

// Sums over sorted tokens. A block has one position and some columns; a thread has 8 columns.
template <typename T>
struct SortedTokens {
  __device__ uint64_t PositionOfBlock() const { return blockIdx.x / column_blocks; }
  __device__ uint64_t ColumnOfThread() const {
    return (blockIdx.x % column_blocks * kSumThreads + threadIdx.x) * uint64_t{kRowVector};
  }

  // How many of the kChunk tokens from `at` on belong to the row that starts at `start`.
  __device__ unsigned ChunkTokens(uint64_t at, uint64_t start) const {
    if (at + kChunk <= rows.tokens && starts[at + kChunk - 1] == start) return kChunk;
    unsigned n = 0;
    while (n < kChunk && at + n < rows.tokens && starts[at + n] == start) ++n;
    return n;
  }

  __device__ bool HasSeveralChunks(uint64_t start) const {
    return start + kChunk < rows.tokens && starts[start + kChunk] == start;
  }

  // sums += the gradients of the tokens [at, at + n), in order.
  __device__ void Add(uint64_t at, unsigned n, uint64_t column, float* sums) const {
#pragma unroll 4
    for (unsigned k = 0; k < n; ++k) {
      const RowPack<T> in = LoadRowPack(dy + order[at + k] * hidden, column, hidden, words);
#pragma unroll
      for (unsigned i = 0; i < kRowVector; ++i) sums[i] += Widen(in.element[i]);
    }
  }

  __device__ void Finish(uint64_t row, uint64_t column, const float* sums) const {
    T* const to = dtable + row * hidden;
    RowPack<T> out = {};
    if (accumulate) out = LoadRowPack(to, column, hidden, words);
#pragma unroll
    for (unsigned i = 0; i < kRowVector; ++i) {
      out.element[i] = Narrow<T>(accumulate ? Widen(out.element[i]) + sums[i] : sums[i]);
    }
    StoreRowPack(out, to, column, hidden, words);
  }

  RowsOfTokens rows;
  const uint32_t* order;
  const uint32_t* starts;
  const T* dy;
  T* dtable;
  float* partial;  // [tokens / kChunk][hidden]; row p / kChunk has the full chunk that starts at p
  uint64_t hidden;
  unsigned column_blocks;
  bool accumulate;
  bool words;  // every row of dy and dtable is 16-byte aligned
};

// Finishes rows with one chunk; writes the full chunks of other rows to `partial`.
template <typename T>
struct AddTokens {
  static constexpr unsigned kThreads = kSumThreads;

  __device__ void Run() const {
    const uint64_t at = sorted.PositionOfBlock();
    const uint64_t column = sorted.ColumnOfThread();
    const uint64_t start = sorted.starts[at];
    if (column >= sorted.hidden || (at - start) % kChunk != 0) return;
    const uint64_t row = sorted.rows.RowOf(sorted.order[at]);
    if (row == sorted.rows.rows) return;
    const unsigned n = sorted.ChunkTokens(at, start);
    const bool several = sorted.HasSeveralChunks(start);
    if (several && n != kChunk) return;
    float sums[kRowVector] = {};
    sorted.Add(at, n, column, sums);
    if (!several) return sorted.Finish(row, column, sums);
    float* const to = sorted.partial + at / kChunk * sorted.hidden;
#pragma unroll
    for (unsigned i = 0; i < kRowVector; ++i) {
      if (column + i < sorted.hidden) to[column + i] = sums[i];
    }
  }

  SortedTokens<T> sorted;
};
GEMINID_KERNEL(geminid_embedding_add_tokens_fp32, AddTokens<float>);
GEMINID_KERNEL(geminid_embedding_add_tokens_bf16, AddTokens<BFloat16>);

// Finishes the rows with several chunks: full chunks in order, then the remaining tokens.
template <typename T>
struct AddTokenChunks {
  static constexpr unsigned kThreads = kSumThreads;

  __device__ void Run() const {
    const uint64_t start = sorted.PositionOfBlock();
    const uint64_t column = sorted.ColumnOfThread();
    if (column >= sorted.hidden || sorted.starts[start] != start ||
        !sorted.HasSeveralChunks(start)) {
      return;
    }
    const uint64_t row = sorted.rows.RowOf(sorted.order[start]);
    if (row == sorted.rows.rows) return;
    float sums[kRowVector] = {};
    uint64_t at = start;
    for (; sorted.ChunkTokens(at, start) == kChunk; at += kChunk) {
      const RowPack<float> chunk = LoadRowPack(sorted.partial + at / kChunk * sorted.hidden, column,
                                               sorted.hidden, partial_words);
#pragma unroll
      for (unsigned i = 0; i < kRowVector; ++i) sums[i] += chunk.element[i];
    }
    float rest[kRowVector] = {};
    sorted.Add(at, sorted.ChunkTokens(at, start), column, rest);
#pragma unroll
    for (unsigned i = 0; i < kRowVector; ++i) sums[i] += rest[i];
    sorted.Finish(row, column, sums);
  }

  SortedTokens<T> sorted;
  bool partial_words;  // every row of `partial` is 16-byte aligned
};
GEMINID_KERNEL(geminid_embedding_add_chunks_fp32, AddTokenChunks<float>);
GEMINID_KERNEL(geminid_embedding_add_chunks_bf16, AddTokenChunks<BFloat16>);

template <typename T>
struct ZeroOp {
  __device__ void operator()(uint64_t at, unsigned n, bool words) const {
    const Pack<T> zero = {};
    StorePack(zero, words, n, to + at);
  }

  T* to;
};
GEMINID_KERNEL(geminid_embedding_zero_fp32, ForEachPack<ZeroOp<float>>);
GEMINID_KERNEL(geminid_embedding_zero_bf16, ForEachPack<ZeroOp<BFloat16>>);

}  // namespace cuda

namespace {

// The arrays of the workspace, one after another.
struct Layout {
  size_t tiles;
  size_t order_bytes;  // of one of the two orders, and of the starts
  size_t counts_bytes;
  size_t partial_bytes;

  explicit Layout(const EmbeddingShape& shape)
      : tiles(cuda::BlocksFor(shape.tokens, cuda::kTileTokens)),
        order_bytes(RoundUpTo(shape.tokens * sizeof(uint32_t), kWorkspaceAlignment)),
        counts_bytes(tiles * cuda::kDigits * sizeof(uint32_t)),
        partial_bytes(RoundUpTo(shape.tokens / cuda::kChunk * shape.hidden * sizeof(float),
                                kWorkspaceAlignment)) {}

  size_t Bytes() const { return 3 * order_bytes + counts_bytes + partial_bytes; }
};

// Sorts the tokens by row, in turn in `places[0]` and `places[1]`; *order points to the result.
Status SortTokens(const cuda::RowsOfTokens& rows, size_t tiles, uint32_t* const (&places)[2],
                  uint32_t* counts, const uint32_t** order, CudaStream stream) {
  const uint32_t* from = nullptr;
  unsigned to = 0;
  const auto bits = static_cast<unsigned>(std::bit_width(rows.rows));
  for (unsigned shift = 0; shift < bits; shift += cuda::kDigitBits) {
    const cuda::DigitPass pass = {rows, from, shift};
    Status status = cuda::LaunchKernel(cuda::CountDigits{pass, counts}, tiles, stream);
    if (status == Status::kOk) {
      status = cuda::LaunchKernel(cuda::PlaceDigits{counts, tiles}, 1, stream);
    }
    if (status == Status::kOk) {
      status = cuda::LaunchKernel(cuda::MoveTokens{pass, counts, places[to]}, tiles, stream);
    }
    if (status != Status::kOk) return status;
    from = places[to];
    to = 1 - to;
  }
  *order = from;
  return Status::kOk;
}

}  // namespace

size_t EmbeddingCudaWorkspaceBytes(const EmbeddingShape& shape) { return Layout(shape).Bytes(); }

template <typename T>
Status EmbeddingBackwardCuda(const EmbeddingShape& shape, const int32_t* ids, const T* dy,
                             T* dtable, bool accumulate, void* workspace, size_t workspace_bytes,
                             CudaStream stream) {
  size_t table_count = 0;
  Status status = CheckEmbeddingBackward(shape, ids, Ids::kOnDevice, dy, dtable, &table_count);
  if (status == Status::kOk) {
    status = CheckWorkspace(workspace, workspace_bytes, EmbeddingCudaWorkspaceBytes(shape));
  }
  const size_t column_blocks = cuda::BlocksFor(shape.hidden, cuda::kSumBlockColumns);
  if (status == Status::kOk && shape.tokens > cuda::kBlocksMax / column_blocks) {
    status = Status::kSizeOverflow;
  }
  if (status == Status::kOk && !accumulate) {
    status = cuda::LaunchForEachPack(cuda::ZeroOp<T>{dtable}, table_count, cuda::LiesOnWord(dtable),
                                     stream);
  }
  if (status != Status::kOk || shape.rows == 0 || shape.tokens == 0) return status;

  const Layout layout(shape);
  auto* const bytes = static_cast<std::byte*>(workspace);
  uint32_t* const places[2] = {reinterpret_cast<uint32_t*>(bytes),
                               reinterpret_cast<uint32_t*>(bytes + layout.order_bytes)};
  auto* const starts = reinterpret_cast<uint32_t*>(bytes + 2 * layout.order_bytes);
  auto* const counts = reinterpret_cast<uint32_t*>(bytes + 3 * layout.order_bytes);
  auto* const partial =
      reinterpret_cast<float*>(bytes + 3 * layout.order_bytes + layout.counts_bytes);
  const cuda::RowsOfTokens rows = {ids, shape.first_row, shape.rows, shape.tokens};
  const uint32_t* order = nullptr;
  status = SortTokens(rows, layout.tiles, places, counts, &order, stream);
  if (status != Status::kOk) return status;
  status = cuda::LaunchKernel(cuda::FindStarts{rows, order, starts},
                              cuda::BlocksFor(shape.tokens, cuda::FindStarts::kThreads), stream);
  if (status != Status::kOk) return status;
  const cuda::SortedTokens<T> sorted = {
      rows,         order,
      starts,       dy,
      dtable,       partial,
      shape.hidden, static_cast<unsigned>(column_blocks),
      accumulate,   cuda::RowPacksLieOnWords(shape.hidden, {dy, dtable})};
  status = cuda::LaunchKernel(cuda::AddTokens<T>{sorted}, shape.tokens * column_blocks, stream);
  if (status != Status::kOk || shape.tokens <= cuda::kChunk) return status;
  return cuda::LaunchKernel(
      cuda::AddTokenChunks<T>{sorted, cuda::RowPacksLieOnWords(shape.hidden, {partial})},
      shape.tokens * column_blocks, stream);
}

template Status EmbeddingBackwardCuda(const EmbeddingShape&, const int32_t*, const float*, float*,
                                      bool, void*, size_t, CudaStream);
template Status EmbeddingBackwardCuda(const EmbeddingShape&, const int32_t*, const BFloat16*,
                                      BFloat16*, bool, void*, size_t, CudaStream);

}  // namespace geminid::kernels
