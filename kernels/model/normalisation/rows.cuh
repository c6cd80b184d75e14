// Normalisations process a narrow row with a warp and a wide row with a block. Sums follow
// kernels/model/normalisation/row_order.h, so the bits are those of the host. A thread reads 8
// columns at a time (16 bytes of bf16) and holds 64 bytes of each array in registers. It reads the
// rest of wider rows again, from the cache. Device code; only the *_cuda.cu files include it.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_CUH_
#define GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_CUH_

#include "kernels/model/normalisation/row_order.h"
#include "kernels/runtime/cuda/row_pack.cuh"

namespace geminid::kernels::cuda {

inline constexpr unsigned kWarpThreads = 32;

// values[0], values[stride], ... of 8, folded as 0 + 4, then + 2, then + 1.
__device__ inline float FoldEight(const float* values, unsigned stride) {
  float folded[kRowVector];
#pragma unroll
  for (unsigned i = 0; i < kRowVector; ++i) folded[i] = values[i * stride];
#pragma unroll
  for (unsigned half = kRowVector / 2; half != 0; half /= 2) {
#pragma unroll
    for (unsigned i = 0; i < half; ++i) folded[i] += folded[i + half];
  }
  return folded[0];
}

// The sum of the values of the warp, in each of its threads: thread i + thread i+16, then +8 to +1.
__device__ inline float SumWarp(float value) {
#pragma unroll
  for (unsigned half = kWarpThreads / 2; half != 0; half /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, half, kWarpThreads);
  }
  return value;
}

// Each warp of a block has a row.
struct NarrowRow {
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kRowThreads = kWarpThreads;
  static constexpr unsigned kRows = kThreads / kRowThreads;
  static_assert(kRowThreads * kRowVector == kNarrowLanes);

  // Shared memory of a block.
  struct Shared {
    float lanes[kThreads * kRowVector];
  };

  // Returns the sum of the row's lanes, 8 per thread, to each of the row's threads.
  __device__ static float Sum(const float* mine, Shared* shared) {
    const unsigned thread = threadIdx.x % kRowThreads;
    float* const lanes = shared->lanes + threadIdx.x / kRowThreads * kNarrowLanes;
    __syncwarp();  // the previous sum has been read
#pragma unroll
    for (unsigned i = 0; i < kRowVector; ++i) lanes[thread * kRowVector + i] = mine[i];
    __syncwarp();
    return SumWarp(FoldEight(lanes + thread, kRowThreads));
  }
};

// A block has one row.
struct WideRow {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kRowThreads = kThreads;
  static constexpr unsigned kRows = 1;
  static_assert(kRowThreads * kRowVector == kWideLanes);

  struct Shared {
    float lanes[kWideLanes];
    float folded[kThreads];
  };

  // A sum reads `folded` last; the next sum writes `folded` only after its first __syncthreads.
  __device__ static float Sum(const float* mine, Shared* shared) {
    const unsigned thread = threadIdx.x;
#pragma unroll
    for (unsigned i = 0; i < kRowVector; ++i) shared->lanes[thread * kRowVector + i] = mine[i];
    __syncthreads();
    shared->folded[thread] = FoldEight(shared->lanes + thread, kThreads);
    __syncthreads();
    return SumWarp(FoldEight(shared->folded + thread % kWarpThreads, kWarpThreads));
  }
};

// The row of the calling thread. Threads beyond the last row compute the last row, too, so that
// whole warps take part in the sums. These threads store nothing.
template <class Row>
struct RowOfThread {
  uint64_t row;
  unsigned thread;  // among those of the row
  bool exists;

  __device__ explicit RowOfThread(uint64_t rows)
      : row(static_cast<uint64_t>(blockIdx.x) * Row::kRows + threadIdx.x / Row::kRowThreads),
        thread(threadIdx.x % Row::kRowThreads),
        exists(row < rows) {
    if (!exists) row = rows - 1;
  }
};

// The elements that one thread reads of one row of an array.
template <typename T, class Row>
class HeldRow {
 public:
  static constexpr unsigned kHeld = 4 * kWordBytes / sizeof(RowPack<T>);

  __device__ HeldRow(const T* row, uint64_t cols, bool words, unsigned thread)
      : row_(row), cols_(cols), words_(words) {
#pragma unroll
    for (unsigned p = 0; p < kHeld; ++p) {
      const uint64_t column = ColumnOf(p, thread);
      if (column < cols) held_[p] = LoadRowPack(row, column, cols, words);
    }
  }

  __device__ static uint64_t ColumnOf(unsigned pack, unsigned thread) {
    return (static_cast<uint64_t>(pack) * Row::kRowThreads + thread) * kRowVector;
  }

  __device__ const RowPack<T>& Held(unsigned pack) const { return held_[pack]; }
  __device__ RowPack<T> Again(uint64_t column) const {
    return LoadRowPack(row_, column, cols_, words_);
  }

 private:
  const T* row_;
  uint64_t cols_;
  bool words_;
  RowPack<T> held_[kHeld];
};

// Calls op(column, packs...) for each of the thread's packs of the rows, in order.
template <class Op, typename T, class Row, class... More>
__device__ void ForEachPackOfRow(uint64_t cols, unsigned thread, const Op& op,
                                 const HeldRow<T, Row>& row, const More&... more) {
#pragma unroll
  for (unsigned p = 0; p < HeldRow<T, Row>::kHeld; ++p) {
    const uint64_t column = HeldRow<T, Row>::ColumnOf(p, thread);
    if (column < cols) op(column, row.Held(p), more.Held(p)...);
  }
  for (uint64_t column = HeldRow<T, Row>::ColumnOf(HeldRow<T, Row>::kHeld, thread); column < cols;
       column += Row::kRowThreads * kRowVector) {
    op(column, row.Again(column), more.Again(column)...);
  }
}

// The arrays for the gradient of a row's input, besides the sums over the row. `begin` is the row's
// first element in dx and residual. `residual` is nullable.
template <typename T, typename P>
struct InputGradientArrays {
  const P* gamma;
  const T* residual;
  T* dx;
  uint64_t begin;
  uint64_t cols;
  bool words;  // every row of every array is 16-byte aligned
};

// dx = op(dy gamma, x) + residual for each of the thread's packs of the row.
template <class Op, typename T, typename P, class Row>
__device__ void StoreInputGradient(const InputGradientArrays<T, P>& to, unsigned thread,
                                   const HeldRow<T, Row>& above, const HeldRow<T, Row>& from,
                                   const Op& op) {
  ForEachPackOfRow(
      to.cols, thread,
      [&](uint64_t column, const RowPack<T>& in_dy, const RowPack<T>& in_x) {
        const RowPack<P> scale = LoadRowPack(to.gamma, column, to.cols, to.words);
        RowPack<T> added = {};
        if (to.residual != nullptr) {
          added = LoadRowPack(to.residual + to.begin, column, to.cols, to.words);
        }
        RowPack<T> out;
#pragma unroll
        for (unsigned i = 0; i < kRowVector; ++i) {
          float d = op(Widen(in_dy.element[i]) * Widen(scale.element[i]), in_x.element[i]);
          if (to.residual != nullptr) d = d + Widen(added.element[i]);
          out.element[i] = Narrow<T>(d);
        }
        StoreRowPack(out, to.dx + to.begin, column, to.cols, to.words);
      },
      above, from);
}

// Calls launch(NarrowRow) or launch(WideRow), as the width requires.
template <class Launch>
Status LaunchForRow(size_t cols, const Launch& launch) {
  return IsNarrowRow(cols) ? launch(NarrowRow{}) : launch(WideRow{});
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_ROWS_CUH_
