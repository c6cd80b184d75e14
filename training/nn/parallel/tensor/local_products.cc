#include "training/nn/parallel/tensor/local_products.h"

#include <algorithm>

#include "base/status_macros.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/model/matmul/linear.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::collectives {

using kernels::FromKernel;

namespace {

// The larger workspace of a product that overwrites its result and one that adds to it.
size_t BytesOf(kernels::MatmulShape shape, size_t threads) {
  size_t most = 0;
  for (const bool accumulate : {false, true}) {
    shape.accumulate = accumulate;
    size_t bytes = 0;
    // An unsupported shape is refused when the product runs.
    (void)kernels::MatmulWorkspaceBytes<float, float>(shape, &bytes, kernels::MatmulPath::kAuto,
                                                      threads);
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

ProductBytes ProductBytesOf(const LinearShape& shape, size_t threads) {
  const size_t tokens = shape.tokens, in = shape.in, out = shape.out;
  return {
      .forward = BytesOf(kernels::LinearForwardShape(tokens, in, out, /*bias=*/false), threads),
      .backward_input = BytesOf(kernels::LinearBackwardInputShape(tokens, in, out, false), threads),
      .backward_weight =
          BytesOf(kernels::LinearBackwardWeightShape(tokens, in, out, false), threads),
      .backward_bias = kernels::ColumnSumWorkspaceBytes(out)};
}

absl::Status LocalProducts::Multiply(const kernels::MatmulShape& shape, const float* a,
                                     const float* b, float* c) {
  if (watcher_ != nullptr) watcher_();
  constexpr auto kPath = kernels::MatmulPath::kAuto;
  const size_t threads = pool_ == nullptr ? 1 : pool_->threads();
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(FromKernel(
      kernels::MatmulWorkspaceBytes<float, float>(shape, &bytes, kPath, threads), "matmul"));
  GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace(bytes));
  return FromKernel(
      kernels::Matmul<float, float>(shape, a, b, nullptr, c, workspace.data(), bytes, kPath, pool_),
      "matmul");
}

absl::Status LocalProducts::Forward(const LinearShape& shape, const float* x, const float* w,
                                    float* y, Into into) {
  kernels::MatmulShape product =
      kernels::LinearForwardShape(shape.tokens, shape.in, shape.out, /*bias=*/false);
  product.accumulate = into == Into::kAdd;
  return Multiply(product, x, w, y);
}

absl::Status LocalProducts::BackwardInput(const LinearShape& shape, const float* dy, const float* w,
                                          float* dx, Into into) {
  return Multiply(
      kernels::LinearBackwardInputShape(shape.tokens, shape.in, shape.out, into == Into::kAdd), dy,
      w, dx);
}

absl::Status LocalProducts::BackwardWeight(const LinearShape& shape, const float* dy,
                                           const float* x, float* dw, Into into) {
  return Multiply(
      kernels::LinearBackwardWeightShape(shape.tokens, shape.in, shape.out, into == Into::kAdd), dy,
      x, dw);
}

absl::Status LocalProducts::BackwardBias(size_t rows, size_t columns, const float* dy, float* db) {
  const size_t bytes = kernels::ColumnSumWorkspaceBytes(columns);
  GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace(bytes));
  return FromKernel(
      kernels::ColumnSum(rows, columns, dy, db, /*accumulate=*/false, workspace.data(), bytes),
      "column sum");
}

}  // namespace geminid::collectives
