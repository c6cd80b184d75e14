#include "kernels/model/elementwise/bias.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/model/elementwise/bias_host.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/runtime/common/float_environment.h"
#include "kernels/runtime/simd/arguments.h"
#include "kernels/runtime/simd/f32x16-inl.h"
#include "kernels/runtime/simd/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

template <typename T>
void BiasAddLoop(size_t rows, size_t cols, const T* bias, T* x) {
  for (size_t r = 0; r < rows; ++r) {
    T* row = x + r * cols;
    for (size_t i = 0; i < cols; i += kWidth) {
      const size_t n = cols - i;
      StoreN(LoadN(row + i, n) + LoadN(bias + i, n), row + i, n);
    }
  }
}

template <typename T>
void ColumnSumLoop(size_t rows, size_t cols, const T* x, T* out, bool accumulate, float* sums) {
  ZeroRow(sums, cols);
  for (size_t r = 0; r < rows; ++r) {
    const T* row = x + r * cols;
    for (size_t i = 0; i < cols; i += kWidth) {
      Store(Load(sums + i) + LoadN(row + i, cols - i), sums + i);
    }
  }
  FinishRow(sums, cols, accumulate, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {

template <typename T>
Status BiasAdd(size_t rows, size_t cols, const T* bias, T* x) {
  size_t count = 0;
  Status status = CheckedProduct(rows, cols, &count);
  if (status != Status::kOk) return status;
  status = CheckBuffers({Buffer::Of(bias, cols)}, {Buffer::Of(x, count)});
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(BiasAddLoop<T>)(rows, cols, bias, x);
  return Status::kOk;
}

size_t ColumnSumWorkspaceBytes(size_t cols) { return FloatRowBytes(cols); }

template <typename T>
Status ColumnSum(size_t rows, size_t cols, const T* x, T* out, bool accumulate, void* workspace,
                 size_t workspace_bytes) {
  size_t count = 0;
  Status status = CheckedProduct(rows, cols, &count);
  if (status != Status::kOk) return status;
  status = CheckBuffers({Buffer::Of(x, count)}, {Buffer::Of(out, cols)});
  if (status != Status::kOk) return status;
  status = CheckWorkspace(workspace, workspace_bytes, ColumnSumWorkspaceBytes(cols));
  if (status != Status::kOk || cols == 0) return status;
  const ScopedFloatEnvironment environment;
  GEMINID_KERNEL_LOOP(ColumnSumLoop<T>)
  (rows, cols, x, out, accumulate, static_cast<float*>(workspace));
  return Status::kOk;
}

template Status BiasAdd(size_t, size_t, const float*, float*);
template Status BiasAdd(size_t, size_t, const BFloat16*, BFloat16*);
template Status ColumnSum(size_t, size_t, const float*, float*, bool, void*, size_t);
template Status ColumnSum(size_t, size_t, const BFloat16*, BFloat16*, bool, void*, size_t);

}  // namespace geminid::kernels
#endif  // HWY_ONCE
