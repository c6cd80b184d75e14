#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/max_isa.h"
#include "kernels/model/matmul/checks.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/model/matmul/packed.h"
#include "kernels/model/matmul/plan.h"
#include "kernels/model/matmul/tiles.h"
#include "kernels/model/matmul/transpose.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/isa.h"

namespace geminid::kernels {
namespace {

using DataType = dnnl::memory::data_type;

float* FloatsAt(void* workspace, size_t offset_bytes) {
  return reinterpret_cast<float*>(static_cast<char*>(workspace) + offset_bytes);
}

void Convert(const CastRows& rows, const float* from, float* to) {
  for (size_t r = 0; r < rows.rows; ++r) {
    std::copy_n(from + r * rows.input_stride, rows.cols, to + r * rows.output_stride);
  }
}
void Convert(const CastRows& rows, const BFloat16* from, float* to) {
  (void)CastRowsToFloat(rows, from, to);
}
void Convert(const CastRows& rows, const float* from, BFloat16* to) {
  (void)CastRowsToBFloat16(rows, from, to);
}

// Converts a stored matrix to or from a copy. Matmul checked the buffers, so casts cannot refuse.
template <typename From, typename To>
void ConvertMatrix(ThreadPool* pool, const From* from, size_t from_stride, To* to, size_t to_stride,
                   size_t rows, size_t cols) {
  constexpr size_t kRows = 32;  // of a task
  (void)RunTasks(pool, GranuleCount(rows, kRows), [&](size_t task, size_t) {
    const Granule part = GranuleAt(task, rows, kRows);
    const size_t count = part.end - part.begin;
    const bool dense = from_stride == cols && to_stride == cols;  // then it is one long row
    const CastRows some = dense ? CastRows{1, count * cols, count * cols, count * cols}
                                : CastRows{count, cols, from_stride, to_stride};
    Convert(some, from + part.begin * from_stride, to + part.begin * to_stride);
    return Status::kOk;
  });
}

template <typename T>
void WidenMatrix(ThreadPool* pool, const T* from, const MatrixStorage& storage, float* to) {
  ConvertMatrix(pool, from, storage.stride, to, storage.cols, storage.rows, storage.cols);
}

template <typename T>
void NarrowMatrix(ThreadPool* pool, const float* from, const MatrixStorage& storage, T* to) {
  ConvertMatrix(pool, from, storage.cols, to, storage.stride, storage.rows, storage.cols);
}

template <typename T>
constexpr DataType TypeOf() {
  return std::is_same_v<T, float> ? DataType::f32 : DataType::bf16;
}

// Writes the fp32 copy of a transposed A as [m,k], so that the product does not read down long
// rows.
template <typename T>
void WidenTransposed(ThreadPool* pool, const MatmulShape& s, const T* a, float* to,
                     size_t to_stride) {
  constexpr size_t kRows = 32, kCols = 64;  // of a block, 8 KiB
  (void)RunTasks(pool, GranuleCount(s.k, kRows), [&](size_t task, size_t) {
    const Granule rows = GranuleAt(task, s.k, kRows);
    alignas(64) float piece[kRows * kCols];
    for (size_t i = 0; i < GranuleCount(s.m, kCols); ++i) {
      const Granule cols = GranuleAt(i, s.m, kCols);
      Convert({rows.size(), cols.size(), s.a_stride, kCols},
              a + rows.begin * s.a_stride + cols.begin, piece);
      TransposeFloats({rows.size(), cols.size(), kCols}, piece,
                      to + cols.begin * to_stride + rows.begin, to_stride);
    }
    return Status::kOk;
  });
}

// The product of one tile. Strides are filled in.
template <typename In, typename Out>
PlanKey KeyOf(const MatmulShape& shape, const MatmulTile& tile) {
  MatmulShape part = shape;
  part.m = tile.rows;
  part.n = tile.cols;
  return {part, TypeOf<In>(), TypeOf<Out>()};
}

// Bytes that one thread needs besides the matrices. Throws as Plan does.
template <typename In, typename Out>
size_t ScratchpadBytes(const MatmulShape& shape) {
  const MatmulTiles tiles(shape);
  size_t most = 0;
  // The last tiles of rows and columns may be smaller.
  for (const size_t row : {size_t{0}, tiles.row_tiles() - 1}) {
    for (const size_t col : {size_t{0}, tiles.col_tiles() - 1}) {
      const Plan& plan = PlanCache::OfThisThread().Get(
          KeyOf<In, Out>(shape, tiles.At(col * tiles.row_tiles() + row)));
      most = std::max(most, plan.scratchpad_bytes());
    }
  }
  return RoundUpTo(most, kWorkspaceAlignment);
}

// Computes tile after tile; `scratchpads` has ScratchpadBytes for each thread.
template <typename In, typename Out>
Status RunTiles(const MatmulShape& s, const In* a, const In* b, const Out* bias, Out* c,
                void* scratchpads, size_t scratchpad_bytes, ThreadPool* pool) {
  const MatmulTiles tiles(s);
  return RunTasks(pool, tiles.count(), [&](size_t index, size_t thread) {
    const MatmulTile tile = tiles.At(index);
    const SingleThread single_thread;
    const ScopedFloatEnvironment environment;
    try {
      PlanCache::OfThisThread()
          .Get(KeyOf<In, Out>(s, tile))
          .Run(a + tile.row * (s.transpose_a == Transpose::kYes ? 1 : s.a_stride),
               b + tile.col * (s.transpose_b == Transpose::kYes ? s.b_stride : 1),
               s.bias ? bias + tile.col : nullptr, c + tile.row * s.c_stride + tile.col,
               static_cast<char*>(scratchpads) + thread * scratchpad_bytes);
    } catch (const std::exception&) {
      return Status::kUnsupported;
    }
    return Status::kOk;
  });
}

// A product on fp32 copies, panel after panel. The workspace, in bytes, has all of A and the bias.
// Then it has for each thread a panel of B, a tile of C and the scratchpad of their product.
template <typename Out>
struct Widening {
  // Throws as Plan does.
  explicit Widening(const MatmulShape& of)
      : shape(of),
        tiles(of),
        turns_a(of.transpose_a == Transpose::kYes && CopyPays(of.m, of.n)),
        a_stride(turns_a ? PaddedStride(of.k) : StorageA(of).cols),
        bias(FloatRowBytes(turns_a ? of.m * a_stride : StorageA(of).dense())),
        threads(bias + (of.bias ? FloatRowBytes(of.n) : 0)),
        tile(FloatRowBytes(of.k * tiles.Panel(0).size())),
        scratchpad(tile +
                   (kHasTile ? FloatRowBytes(tiles.Rows(0).size() * tiles.Panel(0).size()) : 0)) {
    size_t most = 0;
    // The last panel and the last rows may be smaller.
    for (const size_t panel : {size_t{0}, tiles.panels() - 1}) {
      for (const size_t rows : {size_t{0}, tiles.row_tiles() - 1}) {
        const PlanKey key = KeyOf(tiles.Panel(panel), tiles.Rows(rows));
        most = std::max(most, PlanCache::OfThisThread().Get(key).scratchpad_bytes());
      }
    }
    of_thread = RoundUpTo(scratchpad + most, kWorkspaceAlignment);
  }

  size_t bytes(size_t thread_count) const { return threads + thread_count * of_thread; }

  PlanKey KeyOf(const Granule& columns, const Granule& rows) const {
    MatmulShape part = shape;
    part.m = rows.size();
    part.n = columns.size();
    if (turns_a) part.transpose_a = Transpose::kNo;
    part.a_stride = a_stride;
    part.b_stride = StorageB(part).cols;
    if (kHasTile) part.c_stride = part.n;
    return {part, DataType::f32, DataType::f32};
  }

  // fp32 results are summed in C itself.
  static constexpr bool kHasTile = !std::is_same_v<Out, float>;

  const MatmulShape shape;
  const WideTiles tiles;
  const bool turns_a;
  const size_t a_stride;
  const size_t bias;
  const size_t threads;
  const size_t tile;
  const size_t scratchpad;
  size_t of_thread = 0;
};

// Computes one tile of C on one thread, whose copies begin at `own`. Throws as Plan does.
template <typename Out>
void RunWideTile(const Widening<Out>& wide, const Granule& columns, const Granule& rows,
                 const float* a, const float* bias, Out* c, char* own) {
  const MatmulShape& s = wide.shape;
  Out* const out = c + rows.begin * s.c_stride + columns.begin;
  const MatrixStorage tile = {rows.size(), columns.size(), s.c_stride};
  float* wide_c;
  if constexpr (Widening<Out>::kHasTile) {
    wide_c = FloatsAt(own, wide.tile);
    if (s.accumulate) WidenMatrix(nullptr, out, tile, wide_c);
  } else {
    wide_c = out;
  }
  const bool down = s.transpose_a == Transpose::kYes && !wide.turns_a;
  PlanCache::OfThisThread()
      .Get(wide.KeyOf(columns, rows))
      .Run(a + rows.begin * (down ? 1 : wide.a_stride), FloatsAt(own, 0),
           s.bias ? bias + columns.begin : nullptr, wide_c, own + wide.scratchpad);
  if constexpr (Widening<Out>::kHasTile) NarrowMatrix(nullptr, wide_c, tile, out);
}

template <typename In>
void WidenPanel(const MatmulShape& s, const Granule& columns, const In* b, float* to) {
  const bool by_rows = s.transpose_b == Transpose::kYes;
  WidenMatrix(nullptr, b + columns.begin * (by_rows ? s.b_stride : 1),
              by_rows ? MatrixStorage{columns.size(), s.k, s.b_stride}
                      : MatrixStorage{s.k, columns.size(), s.b_stride},
              to);
}

template <typename In, typename Out>
Status RunWide(const MatmulShape& shape, const In* a, const In* b, const Out* bias, Out* c,
               void* workspace, ThreadPool* pool) {
  const Widening<Out> wide(shape);
  float* const wide_a = FloatsAt(workspace, 0);
  float* const wide_bias = FloatsAt(workspace, wide.bias);
  if (wide.turns_a) {
    WidenTransposed(pool, shape, a, wide_a, wide.a_stride);
  } else {
    WidenMatrix(pool, a, StorageA(shape), wide_a);
  }
  if (shape.bias) WidenMatrix(pool, bias, {1, shape.n, shape.n}, wide_bias);
  const size_t row_tiles = wide.tiles.row_tiles();
  // The panel that a thread has copied. Tiles of one panel follow each other.
  std::vector<size_t> held(ThreadsOf(pool), wide.tiles.panels());
  return RunTasks(pool, wide.tiles.panels() * row_tiles, [&](size_t task, size_t thread) {
    const SingleThread single_thread;
    const ScopedFloatEnvironment environment;
    char* const own = static_cast<char*>(workspace) + wide.threads + thread * wide.of_thread;
    const Granule columns = wide.tiles.Panel(task / row_tiles);
    if (std::exchange(held[thread], columns.index) != columns.index) {
      WidenPanel(shape, columns, b, FloatsAt(own, 0));
    }
    try {
      RunWideTile(wide, columns, wide.tiles.Rows(task % row_tiles), wide_a, wide_bias, c, own);
    } catch (const std::exception&) {
      return Status::kUnsupported;
    }
    return Status::kOk;
  });
}

}  // namespace

// On a processor with AVX-512 but without these instructions, oneDNN emulates them at a third of
// the speed of its fp32 product.
bool HasNativeBFloat16() {
  static const bool has = IsaInUse() >= base::Isa::kAvx512Bf16;
  return has;
}

namespace {

template <typename In>
bool UseNative(MatmulPath path) {
  if (path != MatmulPath::kAuto) return path == MatmulPath::kNative;
  return std::is_same_v<In, float> || HasNativeBFloat16();
}

// Whether a native product is faster on copies of the operands' blocks.
template <typename In>
bool Packs(const MatmulShape& shape, MatmulPath path) {
  return std::is_same_v<In, float> && UseNative<In>(path) && PackingOf(shape).any();
}

// Bytes for a normalised shape. Throws as Plan does.
template <typename In, typename Out>
size_t NeededBytes(const MatmulShape& shape, MatmulPath path, size_t threads) {
  const SingleThread single_thread;
  if (Packs<In>(shape, path)) return PackedProduct(shape).bytes(threads);
  if (UseNative<In>(path)) return threads * ScratchpadBytes<In, Out>(shape);
  return Widening<Out>(shape).bytes(threads);
}

template <typename In, typename Out>
Status CheckOperands(const MatmulShape& s, const In* a, const In* b, const Out* bias, Out* c) {
  return CheckBuffers({Buffer::Of(a, StorageA(s).span()), Buffer::Of(b, StorageB(s).span()),
                       Buffer::Of(bias, s.bias ? s.n : 0)},
                      {Buffer::Of(c, StorageC(s).span())});
}

}  // namespace

template <typename In, typename Out>
Status MatmulWorkspaceBytes(const MatmulShape& shape, size_t* workspace_bytes, MatmulPath path,
                            size_t threads) {
  if (workspace_bytes == nullptr) return Status::kNullPointer;
  if (threads == 0) return Status::kInvalidParameter;
  MatmulShape normal = shape;
  const Status status = NormaliseMatmul(&normal);
  if (status != Status::kOk) return status;
  try {
    *workspace_bytes = NeededBytes<In, Out>(normal, path, threads);
  } catch (const std::exception&) {
    return Status::kUnsupported;
  }
  return Status::kOk;
}

template <typename In, typename Out>
Status Matmul(const MatmulShape& shape, const In* a, const In* b, const Out* bias, Out* c,
              void* workspace, size_t workspace_bytes, MatmulPath path, ThreadPool* pool) {
  MatmulShape normal = shape;
  Status status = NormaliseMatmul(&normal);
  if (status != Status::kOk) return status;
  status = CheckOperands(normal, a, b, bias, c);
  if (status != Status::kOk) return status;
  try {
    status = CheckWorkspace(workspace, workspace_bytes,
                            NeededBytes<In, Out>(normal, path, ThreadsOf(pool)));
    if (status != Status::kOk) return status;
    const SingleThread single_thread;
    if constexpr (std::is_same_v<In, float>) {
      if (Packs<In>(normal, path)) {
        return PackedProduct(normal).Run({a, b, bias, c}, workspace, pool);
      }
    }
    if (!UseNative<In>(path)) return RunWide(normal, a, b, bias, c, workspace, pool);
    return RunTiles(normal, a, b, bias, c, workspace, ScratchpadBytes<In, Out>(normal), pool);
  } catch (const std::exception&) {
    return Status::kUnsupported;
  }
}

template Status MatmulWorkspaceBytes<BFloat16, BFloat16>(const MatmulShape&, size_t*, MatmulPath,
                                                         size_t);
template Status MatmulWorkspaceBytes<BFloat16, float>(const MatmulShape&, size_t*, MatmulPath,
                                                      size_t);
template Status MatmulWorkspaceBytes<float, float>(const MatmulShape&, size_t*, MatmulPath, size_t);
template Status Matmul(const MatmulShape&, const BFloat16*, const BFloat16*, const BFloat16*,
                       BFloat16*, void*, size_t, MatmulPath, ThreadPool*);
template Status Matmul(const MatmulShape&, const BFloat16*, const BFloat16*, const float*, float*,
                       void*, size_t, MatmulPath, ThreadPool*);
template Status Matmul(const MatmulShape&, const float*, const float*, const float*, float*, void*,
                       size_t, MatmulPath, ThreadPool*);

}  // namespace geminid::kernels
