#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/model/matmul/packed.h"
#include "kernels/model/matmul/transpose.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/parallel/tasks.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace {

// Copies row by row; the rows of a transposed matrix are columns of `storage`.
void Pack(Transpose transpose, const MatrixStorage& storage, const float* from, float* to,
          size_t to_stride) {
  if (transpose == Transpose::kYes) return TransposeFloats(storage, from, to, to_stride);
  for (size_t r = 0; r < storage.rows; ++r) {
    std::copy_n(from + r * storage.stride, storage.cols, to + r * to_stride);
  }
}

// The index of op(stored)[row, col].
size_t PlaceOf(Transpose transpose, size_t stride, size_t row, size_t col) {
  return transpose == Transpose::kYes ? col * stride + row : row * stride + col;
}

MatrixStorage StorageOf(Transpose transpose, size_t rows, size_t cols, size_t stride) {
  if (transpose == Transpose::kYes) return {cols, rows, stride};
  return {rows, cols, stride};
}

}  // namespace

struct PackedProduct::Held {
  static constexpr size_t kNothing = -1;
  size_t a = kNothing;
  size_t b = kNothing;
};

PackedProduct::PackedProduct(const MatmulShape& shape)
    : shape_(shape),
      packing_(PackingOf(shape)),
      tiles_(shape, packing_),
      a_stride_(packing_.a ? PaddedStride(tiles_.Depth(0).size()) : shape.a_stride),
      b_stride_(packing_.b ? PaddedStride(tiles_.Cols(0).size()) : shape.b_stride),
      b_offset_(packing_.a ? FloatRowBytes(tiles_.Rows(0).size() * a_stride_) : 0),
      scratchpad_offset_(b_offset_ +
                         (packing_.b ? FloatRowBytes(tiles_.Depth(0).size() * b_stride_) : 0)) {
  size_t scratchpad = 0;
  // The last block of each dimension may be smaller.
  for (const size_t row : {size_t{0}, tiles_.row_tiles() - 1}) {
    for (const size_t col : {size_t{0}, tiles_.col_tiles() - 1}) {
      for (const size_t depth : {size_t{0}, tiles_.depths() - 1}) {
        const PlanKey key = KeyOf({tiles_.Rows(row), tiles_.Cols(col), tiles_.Depth(depth)});
        scratchpad = std::max(scratchpad, PlanCache::OfThisThread().Get(key).scratchpad_bytes());
      }
    }
  }
  of_thread_ = RoundUpTo(scratchpad_offset_ + scratchpad, kWorkspaceAlignment);
}

PlanKey PackedProduct::KeyOf(const Block& block) const {
  MatmulShape part = shape_;
  part.m = block.rows.size();
  part.n = block.cols.size();
  part.k = block.depth.size();
  part.a_stride = a_stride_;
  part.b_stride = b_stride_;
  if (packing_.a) part.transpose_a = Transpose::kNo;
  if (packing_.b) part.transpose_b = Transpose::kNo;
  if (block.depth.index > 0) {
    part.accumulate = true;
    part.bias = false;
  }
  return {part, dnnl::memory::data_type::f32, dnnl::memory::data_type::f32};
}

// Throws as Plan does.
void PackedProduct::Multiply(const Operands& operands, const Block& block, char* own,
                             Held* held) const {
  const auto& [rows, cols, depth] = block;
  const MatmulShape& s = shape_;
  const float* a = operands.a + PlaceOf(s.transpose_a, s.a_stride, rows.begin, depth.begin);
  const float* b = operands.b + PlaceOf(s.transpose_b, s.b_stride, depth.begin, cols.begin);
  if (packing_.a) {
    float* const copy = reinterpret_cast<float*>(own);
    const size_t number = rows.index * tiles_.depths() + depth.index;
    if (std::exchange(held->a, number) != number) {
      Pack(s.transpose_a, StorageOf(s.transpose_a, rows.size(), depth.size(), s.a_stride), a, copy,
           a_stride_);
    }
    a = copy;
  }
  if (packing_.b) {
    float* const copy = reinterpret_cast<float*>(own + b_offset_);
    const size_t number = cols.index * tiles_.depths() + depth.index;
    if (std::exchange(held->b, number) != number) {
      Pack(s.transpose_b, StorageOf(s.transpose_b, depth.size(), cols.size(), s.b_stride), b, copy,
           b_stride_);
    }
    b = copy;
  }
  const PlanKey key = KeyOf(block);
  PlanCache::OfThisThread().Get(key).Run(
      a, b, key.shape.bias ? operands.bias + cols.begin : nullptr,
      operands.c + rows.begin * s.c_stride + cols.begin, own + scratchpad_offset_);
}

Status PackedProduct::Run(const Operands& operands, void* workspace, ThreadPool* pool) const {
  std::vector<Held> held(ThreadsOf(pool));
  const size_t row_tiles = tiles_.row_tiles();
  return RunTasks(pool, row_tiles * tiles_.col_tiles(), [&](size_t task, size_t thread) {
    const SingleThread single_thread;
    const ScopedFloatEnvironment environment;
    char* const own = static_cast<char*>(workspace) + thread * of_thread_;
    try {
      for (size_t depth = 0; depth < tiles_.depths(); ++depth) {
        Multiply(
            operands,
            {tiles_.Rows(task % row_tiles), tiles_.Cols(task / row_tiles), tiles_.Depth(depth)},
            own, &held[thread]);
      }
    } catch (const std::exception&) {
      return Status::kUnsupported;
    }
    return Status::kOk;
  });
}

}  // namespace geminid::kernels
