#include <algorithm>
#include <type_traits>

#include "kernels/model/matmul/checks.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/model/matmul/plan.h"
#include "kernels/model/matmul/tiles.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace {

using DataType = dnnl::memory::data_type;

// The same product on dense fp32 copies.
MatmulShape Widened(MatmulShape shape) {
  shape.a_stride = StorageA(shape).cols;
  shape.b_stride = StorageB(shape).cols;
  shape.c_stride = StorageC(shape).cols;
  return shape;
}

// Where the copies lie in the workspace, in bytes; the scratchpad of the fp32 product is last.
struct WideLayout {
  size_t b;
  size_t c;
  size_t bias;
  size_t scratchpad;

  explicit WideLayout(const MatmulShape& s)
      : b(FloatRowBytes(StorageA(s).dense())),
        c(b + FloatRowBytes(StorageB(s).dense())),
        bias(c + FloatRowBytes(StorageC(s).dense())),
        scratchpad(bias + (s.bias ? FloatRowBytes(s.n) : 0)) {}
};

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

// Between a stored matrix and its dense copy; buffers of Matmul, so the casts cannot refuse them.
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

// The product of one tile. Strides are filled in.
template <typename In, typename Out>
PlanKey KeyOf(const MatmulShape& shape, const MatmulTile& tile) {
  MatmulShape part = shape;
  part.m = tile.rows;
  part.n = tile.cols;
  return {part, TypeOf<In>(), TypeOf<Out>()};
}

// What one thread needs beside the matrices. Throws as Plan does.
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

// Tile after tile; `scratchpads` has ScratchpadBytes for each thread.
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

template <typename In, typename Out>
Status RunWide(const MatmulShape& shape, const In* a, const In* b, const Out* bias, Out* c,
               void* workspace, ThreadPool* pool) {
  const WideLayout layout(shape);
  float* wide_a = FloatsAt(workspace, 0);
  float* wide_b = FloatsAt(workspace, layout.b);
  float* wide_c = FloatsAt(workspace, layout.c);
  float* wide_bias = FloatsAt(workspace, layout.bias);
  WidenMatrix(pool, a, StorageA(shape), wide_a);
  WidenMatrix(pool, b, StorageB(shape), wide_b);
  if (shape.accumulate) WidenMatrix(pool, c, StorageC(shape), wide_c);
  if (shape.bias) WidenMatrix(pool, bias, {1, shape.n, shape.n}, wide_bias);
  const MatmulShape wide = Widened(shape);
  const Status status = RunTiles<float, float>(wide, wide_a, wide_b, wide_bias, wide_c,
                                               FloatsAt(workspace, layout.scratchpad),
                                               ScratchpadBytes<float, float>(wide), pool);
  if (status == Status::kOk) NarrowMatrix(pool, wide_c, StorageC(shape), c);
  return status;
}

}  // namespace

// Whether this processor has instructions that multiply bf16. Where it has AVX-512 without them,
// oneDNN emulates them at a third of the speed of its fp32 product.
bool HasNativeBFloat16() {
  static const bool has = [] {
    switch (dnnl::get_effective_cpu_isa()) {
      case dnnl::cpu_isa::avx512_core_bf16:
      case dnnl::cpu_isa::avx512_core_amx:
        return true;
      default:
        return false;
    }
  }();
  return has;
}

namespace {

template <typename In>
bool UseNative(MatmulPath path) {
  if (path != MatmulPath::kAuto) return path == MatmulPath::kNative;
  return std::is_same_v<In, float> || HasNativeBFloat16();
}

// Bytes for a normalised shape. Throws as Plan does.
template <typename In, typename Out>
size_t NeededBytes(const MatmulShape& shape, MatmulPath path, size_t threads) {
  const SingleThread single_thread;
  if (UseNative<In>(path)) return threads * ScratchpadBytes<In, Out>(shape);
  return WideLayout(shape).scratchpad + threads * ScratchpadBytes<float, float>(Widened(shape));
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
