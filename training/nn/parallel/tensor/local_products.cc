#include "training/nn/parallel/tensor/local_products.h"

#include <algorithm>
#include <type_traits>

#include "base/status_macros.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/model/matmul/linear.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::collectives {

using kernels::FromKernel;

namespace {

// Of a gradient in bf16, that are widened at a time.
constexpr size_t kWideRows = 32;

// Of a product that adds to what is there, or does not.
template <typename T>
size_t BytesOf(kernels::MatmulShape shape, size_t threads) {
  size_t most = 0;
  for (const bool accumulate : {false, true}) {
    shape.accumulate = accumulate;
    size_t bytes = 0;
    // What a kernel refuses is refused when it runs.
    (void)kernels::MatmulWorkspaceBytes<T, float>(shape, &bytes, kernels::MatmulPath::kAuto,
                                                  threads);
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

template <typename T>
ProductBytes ProductBytesOf(const LinearShape& shape, size_t threads) {
  const size_t tokens = shape.tokens, in = shape.in, out = shape.out;
  const size_t wide =
      std::is_same_v<T, float> ? 0 : std::min(kWideRows, tokens) * out * sizeof(float);
  return {
      .forward = BytesOf<T>(kernels::LinearForwardShape(tokens, in, out, /*bias=*/false), threads),
      .backward_input =
          BytesOf<T>(kernels::LinearBackwardInputShape(tokens, in, out, false), threads),
      .backward_weight =
          BytesOf<T>(kernels::LinearBackwardWeightShape(tokens, in, out, false), threads),
      .backward_bias = kernels::ColumnSumWorkspaceBytes(out) + wide};
}

template <typename T>
absl::Status LocalProducts::Multiply(const kernels::MatmulShape& shape, const T* a, const T* b,
                                     float* c) {
  if (watcher_ != nullptr) watcher_();
  constexpr auto kPath = kernels::MatmulPath::kAuto;
  const size_t threads = pool_ == nullptr ? 1 : pool_->threads();
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(
      FromKernel(kernels::MatmulWorkspaceBytes<T, float>(shape, &bytes, kPath, threads), "matmul"));
  GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace(bytes));
  return FromKernel(
      kernels::Matmul<T, float>(shape, a, b, nullptr, c, workspace.data(), bytes, kPath, pool_),
      "matmul");
}

template <typename T>
absl::Status LocalProducts::Forward(const LinearShape& shape, const T* x, const T* w, float* y,
                                    Into into) {
  kernels::MatmulShape product =
      kernels::LinearForwardShape(shape.tokens, shape.in, shape.out, /*bias=*/false);
  product.accumulate = into == Into::kAdd;
  return Multiply(product, x, w, y);
}

template <typename T>
absl::Status LocalProducts::BackwardInput(const LinearShape& shape, const T* dy, const T* w,
                                          float* dx, Into into) {
  return Multiply(
      kernels::LinearBackwardInputShape(shape.tokens, shape.in, shape.out, into == Into::kAdd), dy,
      w, dx);
}

template <typename T>
absl::Status LocalProducts::BackwardWeight(const LinearShape& shape, const T* dy, const T* x,
                                           float* dw, Into into) {
  return Multiply(
      kernels::LinearBackwardWeightShape(shape.tokens, shape.in, shape.out, into == Into::kAdd), dy,
      x, dw);
}

template <typename T>
absl::Status LocalProducts::BackwardBias(size_t rows, size_t columns, const T* dy, float* db) {
  const size_t bytes = kernels::ColumnSumWorkspaceBytes(columns);
  GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace(bytes));
  const auto add = [&](size_t count, const float* some, bool accumulate) {
    return FromKernel(
        kernels::ColumnSum(count, columns, some, db, accumulate, workspace.data(), bytes),
        "column sum");
  };
  if constexpr (std::is_same_v<T, float>) {
    return add(rows, dy, /*accumulate=*/false);
  } else {
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock wide,
                             FloatBlock::Allocate(memory_, "rows of a gradient in fp32",
                                                  std::min(kWideRows, rows) * columns));
    for (size_t first = 0; first == 0 || first < rows; first += kWideRows) {
      const size_t count = std::min(kWideRows, rows - first);
      GEMINID_RETURN_IF_ERROR(FromKernel(
          kernels::CastToFloat(dy + first * columns, count * columns, wide.data()), "cast"));
      GEMINID_RETURN_IF_ERROR(add(count, wide.data(), /*accumulate=*/first > 0));
    }
    return absl::OkStatus();
  }
}

#define GEMINID_INSTANTIATE(T)                                                                 \
  template ProductBytes ProductBytesOf<T>(const LinearShape&, size_t);                         \
  template absl::Status LocalProducts::Forward(const LinearShape&, const T*, const T*, float*, \
                                               Into);                                          \
  template absl::Status LocalProducts::BackwardInput(const LinearShape&, const T*, const T*,   \
                                                     float*, Into);                            \
  template absl::Status LocalProducts::BackwardWeight(const LinearShape&, const T*, const T*,  \
                                                      float*, Into);                           \
  template absl::Status LocalProducts::BackwardBias(size_t, size_t, const T*, float*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::collectives
