#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/numeric/reduce_rows/reduce_rows_cuda.h"
#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/cuda/pack.cuh"

namespace geminid::kernels {
namespace cuda {

// The type in which elements are added.
template <typename T>
struct RowSum {
  using Type = T;
};
template <>
struct RowSum<BFloat16> {
  using Type = float;
};
template <>
struct RowSum<Float16> {
  using Type = float;
};

template <typename T>
__device__ typename RowSum<T>::Type LoadRowElement(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return Widen(value);
  }
}

template <typename Sum>
__device__ Sum CombineRows(RowReduction reduction, Sum left, Sum right) {
  if (reduction == RowReduction::kSum) {
    if constexpr (std::is_integral_v<Sum>) {  // modulo 2^n, which signed numbers do not promise
      using Unsigned = std::make_unsigned_t<Sum>;
      return static_cast<Sum>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
    } else {
      return left + right;
    }
  }
  const bool wins = reduction == RowReduction::kMin ? right < left : left < right;
  if constexpr (std::is_floating_point_v<Sum>) {
    // A NaN on the left never loses, because no comparison with it holds.
    if (right != right) return right;
  }
  return wins ? right : left;
}

template <typename T>
struct ReduceRows {
  static constexpr unsigned kThreads = cuda::kThreads;
  static constexpr uint64_t kElements = 4;  // of a thread

  __device__ void Run() const {
    using Sum = typename RowSum<T>::Type;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * kThreads * kElements + threadIdx.x;
#pragma unroll
    for (uint64_t e = 0; e < kElements; ++e) {
      const uint64_t at = first + e * kThreads;
      if (at >= count) return;
      Sum sum = LoadRowElement(inputs[at]);
      for (uint64_t row = 1; row < rows; ++row) {
        sum = CombineRows(reduction, sum, LoadRowElement(inputs[row * count + at]));
      }
      if constexpr (std::is_floating_point_v<Sum>) {
        if (reduction == RowReduction::kSum) sum *= static_cast<Sum>(scale);
      }
      if constexpr (std::is_arithmetic_v<T>) {
        out[at] = sum;
      } else {
        out[at] = Narrow<T>(sum);
      }
    }
  }

  const T* inputs;
  T* out;
  uint64_t rows;
  uint64_t count;
  double scale;
  RowReduction reduction;
};
GEMINID_KERNEL(geminid_reduce_rows_fp32, ReduceRows<float>);
GEMINID_KERNEL(geminid_reduce_rows_bf16, ReduceRows<BFloat16>);
GEMINID_KERNEL(geminid_reduce_rows_fp16, ReduceRows<Float16>);
GEMINID_KERNEL(geminid_reduce_rows_fp64, ReduceRows<double>);
GEMINID_KERNEL(geminid_reduce_rows_int32, ReduceRows<int32_t>);
GEMINID_KERNEL(geminid_reduce_rows_int64, ReduceRows<int64_t>);
GEMINID_KERNEL(geminid_reduce_rows_uint8, ReduceRows<uint8_t>);

}  // namespace cuda

template <typename T>
Status ReduceRowsCuda(const T* inputs, size_t rows, size_t count, RowReduction reduction,
                      double scale, T* out, CudaStream stream) {
  const bool scales = reduction == RowReduction::kSum && !std::is_integral_v<T>;
  if (!std::isfinite(scale) || (!scales && scale != 1)) return Status::kInvalidParameter;
  if (rows == 0) return Status::kInvalidShape;
  if (count > std::numeric_limits<size_t>::max() / rows) return Status::kSizeOverflow;
  for (const Buffer& buffer : {Buffer::Of(inputs, rows * count), Buffer::Of(out, count)}) {
    if (const Status status = CheckBuffer(buffer); status != Status::kOk) return status;
  }
  using Kernel = cuda::ReduceRows<T>;
  return cuda::LaunchKernel(Kernel{inputs, out, rows, count, scale, reduction},
                            cuda::BlocksFor(count, Kernel::kThreads * Kernel::kElements), stream);
}

#define GEMINID_INSTANTIATE(T) \
  template Status ReduceRowsCuda(const T*, size_t, size_t, RowReduction, double, T*, CudaStream)
GEMINID_INSTANTIATE(float);
GEMINID_INSTANTIATE(BFloat16);
GEMINID_INSTANTIATE(Float16);
GEMINID_INSTANTIATE(double);
GEMINID_INSTANTIATE(int32_t);
GEMINID_INSTANTIATE(int64_t);
GEMINID_INSTANTIATE(uint8_t);
#undef GEMINID_INSTANTIATE

}  // namespace geminid::kernels
