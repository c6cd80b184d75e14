// Rows of a matrix in packs of 8 columns: 16 bytes of the 16-bit types, twice 16 of fp32. Device
// code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_ROW_PACK_CUH_
#define GEMINID_KERNELS_RUNTIME_CUDA_ROW_PACK_CUH_

#include <cstdint>
#include <initializer_list>

#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels::cuda {

inline constexpr unsigned kRowVector = 8;  // columns that a thread reads at a time

// kRowVector columns from `column` on, as many of them as the row has.
template <typename T>
struct alignas(kWordBytes) RowPack {
  T element[kRowVector];
};

__device__ inline unsigned ColumnsOfPack(uint64_t column, uint64_t cols) {
  return cols - column < kRowVector ? static_cast<unsigned>(cols - column) : kRowVector;
}

// `words`: every row of the array lies on 16 bytes. Columns beyond the row become zero.
template <typename T>
__device__ RowPack<T> LoadRowPack(const T* row, uint64_t column, uint64_t cols, bool words) {
  const unsigned n = ColumnsOfPack(column, cols);
  if (words && n == kRowVector) return *reinterpret_cast<const RowPack<T>*>(row + column);
  RowPack<T> pack = {};
#pragma unroll
  for (unsigned i = 0; i < kRowVector; ++i) {
    if (i < n) pack.element[i] = row[column + i];
  }
  return pack;
}

template <typename T>
__device__ void StoreRowPack(const RowPack<T>& pack, T* row, uint64_t column, uint64_t cols,
                             bool words) {
  const unsigned n = ColumnsOfPack(column, cols);
  if (words && n == kRowVector) {
    *reinterpret_cast<RowPack<T>*>(row + column) = pack;
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < kRowVector; ++i) {
    if (i < n) row[column + i] = pack.element[i];
  }
}

inline bool RowPacksLieOnWords(size_t cols, std::initializer_list<const void*> arrays) {
  bool words = cols % kRowVector == 0;
  for (const void* array : arrays) words = words && LiesOnWord(array);
  return words;
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_ROW_PACK_CUH_
