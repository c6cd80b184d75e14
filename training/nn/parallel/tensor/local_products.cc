#include "training/nn/parallel/tensor/local_products.h"

#include <algorithm>

#include "kernels/model/matmul/linear.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/nn/parallel/host_layer_math.h"

namespace geminid::collectives {
namespace {

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
  return {
      .forward = BytesOf<T>(kernels::LinearForwardShape(tokens, in, out, /*bias=*/false), threads),
      .backward_input =
          BytesOf<T>(kernels::LinearBackwardInputShape(tokens, in, out, false), threads),
      .backward_weight =
          BytesOf<T>(kernels::LinearBackwardWeightShape(tokens, in, out, false), threads),
      .backward_bias = HostColumnSumBytes<T>(tokens, out)};
}

template <typename T>
absl::Status LocalProducts::Multiply(const kernels::MatmulShape& shape, const T* a, const T* b,
                                     float* c) {
  if (watcher_ != nullptr) watcher_();
  return math_.Of<T>().Multiply(shape, a, b, c);
}

template <typename T>
absl::Status LocalProducts::Forward(const LinearShape& shape, const T* x, const T* w, float* y,
                                    OutputMode into) {
  kernels::MatmulShape product =
      kernels::LinearForwardShape(shape.tokens, shape.in, shape.out, /*bias=*/false);
  product.accumulate = into == OutputMode::kAdd;
  return Multiply(product, x, w, y);
}

template <typename T>
absl::Status LocalProducts::BackwardInput(const LinearShape& shape, const T* dy, const T* w,
                                          float* dx, OutputMode into) {
  return Multiply(kernels::LinearBackwardInputShape(shape.tokens, shape.in, shape.out,
                                                    into == OutputMode::kAdd),
                  dy, w, dx);
}

template <typename T>
absl::Status LocalProducts::BackwardWeight(const LinearShape& shape, const T* dy, const T* x,
                                           float* dw, OutputMode into) {
  return Multiply(kernels::LinearBackwardWeightShape(shape.tokens, shape.in, shape.out,
                                                     into == OutputMode::kAdd),
                  dy, x, dw);
}

template <typename T>
absl::Status LocalProducts::BackwardBias(size_t rows, size_t columns, const T* dy, float* db) {
  return math_.Of<T>().ColumnSum(rows, columns, dy, db);
}

#define GEMINID_INSTANTIATE(T)                                                                 \
  template ProductBytes ProductBytesOf<T>(const LinearShape&, size_t);                         \
  template absl::Status LocalProducts::Forward(const LinearShape&, const T*, const T*, float*, \
                                               OutputMode);                                    \
  template absl::Status LocalProducts::BackwardInput(const LinearShape&, const T*, const T*,   \
                                                     float*, OutputMode);                      \
  template absl::Status LocalProducts::BackwardWeight(const LinearShape&, const T*, const T*,  \
                                                      float*, OutputMode);                     \
  template absl::Status LocalProducts::BackwardBias(size_t, size_t, const T*, float*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::collectives
