#include "tools/trainer/compute.h"

#include <algorithm>
#include <optional>

#include "base/status_macros.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/numeric/cast/cast.h"

namespace geminid::trainer {
namespace {

using kernels::BFloat16;
using kernels::MatmulShape;
using kernels::Transpose;

template <typename In, typename Out>
absl::Status Multiply(zero::Workspace& workspace, const MatmulShape& shape, const In* a,
                      const In* b, const Out* bias, Out* c) {
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(
      FromKernel(kernels::MatmulWorkspaceBytes<In, Out>(shape, &bytes), "MatmulWorkspaceBytes"));
  Scratch<std::byte> scratch;
  if (bytes > 0) {
    GEMINID_ASSIGN_OR_RETURN(scratch, Scratch<std::byte>::Allocate(workspace, bytes));
  }
  return FromKernel(kernels::Matmul<In, Out>(shape, a, b, bias, c, scratch.data(), bytes),
                    "Matmul");
}

size_t FirstWeight(const LinearPlace& place) {
  return place.first_output * (place.layout == Layout::kOutIn ? place.stride : 1);
}

}  // namespace

template <typename T>
LinearView<const T> WeightOf(const ParameterUse& use, const LinearPlace& place) {
  return {.weight = WeightOf<T>(use, place.weight) + FirstWeight(place),
          .bias = place.bias ? WeightOf<T>(use, *place.bias) + place.first_output : nullptr,
          .layout = place.layout,
          .in = place.in,
          .out = place.out,
          .stride = place.stride};
}

template <typename T>
LinearView<T> GradientOf(ParameterUse& use, const LinearPlace& place) {
  return {.weight = GradientOf<T>(use, place.weight) + FirstWeight(place),
          .bias = place.bias ? GradientOf<T>(use, *place.bias) + place.first_output : nullptr,
          .layout = place.layout,
          .in = place.in,
          .out = place.out,
          .stride = place.stride};
}

absl::Status GradientsWritten(ParameterUse& use, std::span<const ParameterId> ids) {
  for (const ParameterId id : ids) GEMINID_RETURN_IF_ERROR(use.GradientWritten(id));
  return absl::OkStatus();
}

template <typename T, typename Out>
absl::Status Forward(zero::Workspace& workspace, Matrix<const T> x, const LinearView<const T>& w,
                     Matrix<Out> y, bool accumulate) {
  const MatmulShape shape = {
      .m = x.rows,
      .n = w.out,
      .k = w.in,
      .transpose_b = w.layout == Layout::kOutIn ? Transpose::kYes : Transpose::kNo,
      .accumulate = accumulate,
      .bias = w.bias != nullptr,
      .a_stride = x.stride,
      .b_stride = w.stride,
      .c_stride = y.stride};
  if constexpr (std::is_same_v<T, Out>) {
    return Multiply<T, Out>(workspace, shape, x.data, w.weight, w.bias, y.data);
  } else {
    if (w.bias != nullptr) {
      return absl::InternalError("a layer with a bias has outputs of the type of its weights");
    }
    return Multiply<T, Out>(workspace, shape, x.data, w.weight, nullptr, y.data);
  }
}

template <typename T, typename Out>
absl::Status BackwardInput(zero::Workspace& workspace, Matrix<const T> dy,
                           const LinearView<const T>& w, Matrix<Out> dx, bool accumulate) {
  const MatmulShape shape = {
      .m = dy.rows,
      .n = w.in,
      .k = w.out,
      .transpose_b = w.layout == Layout::kOutIn ? Transpose::kNo : Transpose::kYes,
      .accumulate = accumulate,
      .a_stride = dy.stride,
      .b_stride = w.stride,
      .c_stride = dx.stride};
  return Multiply<T, Out>(workspace, shape, dy.data, w.weight, nullptr, dx.data);
}

template <typename T>
absl::Status BackwardBias(zero::Workspace& workspace, Matrix<const T> dy, T* db) {
  const size_t bytes = kernels::ColumnSumWorkspaceBytes(dy.cols);
  GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(workspace, bytes));
  return FromKernel(kernels::ColumnSum<T>(dy.rows, dy.cols, dy.data, db, /*accumulate=*/false,
                                          scratch.data(), bytes),
                    "ColumnSum");
}

template <typename T>
absl::Status BackwardWeight(zero::Workspace& workspace, Matrix<const T> dy, Matrix<const T> x,
                            const LinearView<T>& dw, bool accumulate) {
  const bool out_in = dw.layout == Layout::kOutIn;
  const Matrix<const T>& a = out_in ? dy : x;
  const Matrix<const T>& b = out_in ? x : dy;
  const MatmulShape shape = {.m = a.cols,
                             .n = b.cols,
                             .k = dy.rows,
                             .transpose_a = Transpose::kYes,
                             .accumulate = accumulate,
                             .a_stride = a.stride,
                             .b_stride = b.stride,
                             .c_stride = dw.stride};
  GEMINID_RETURN_IF_ERROR((Multiply<T, T>(workspace, shape, a.data, b.data, nullptr, dw.weight)));
  return dw.bias == nullptr ? absl::OkStatus() : BackwardBias<T>(workspace, dy, dw.bias);
}

absl::Status Round(const float* in, size_t count, BFloat16* out) {
  return FromKernel(kernels::CastToBFloat16(in, count, out), "CastToBFloat16");
}

absl::Status Round(const float* in, size_t count, float* out) {
  std::copy_n(in, count, out);
  return absl::OkStatus();
}

#define GEMINID_INSTANTIATE(T)                                                                 \
  template LinearView<const T> WeightOf(const ParameterUse&, const LinearPlace&);              \
  template LinearView<T> GradientOf(ParameterUse&, const LinearPlace&);                        \
  template absl::Status Forward(zero::Workspace&, Matrix<const T>, const LinearView<const T>&, \
                                Matrix<T>, bool);                                              \
  template absl::Status BackwardInput(zero::Workspace&, Matrix<const T>,                       \
                                      const LinearView<const T>&, Matrix<T>, bool);            \
  template absl::Status BackwardBias(zero::Workspace&, Matrix<const T>, T*);                   \
  template absl::Status BackwardWeight(zero::Workspace&, Matrix<const T>, Matrix<const T>,     \
                                       const LinearView<T>&, bool);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(BFloat16)
#undef GEMINID_INSTANTIATE
template absl::Status Forward(zero::Workspace&, Matrix<const BFloat16>,
                              const LinearView<const BFloat16>&, Matrix<float>, bool);
template absl::Status BackwardInput(zero::Workspace&, Matrix<const BFloat16>,
                                    const LinearView<const BFloat16>&, Matrix<float>, bool);

}  // namespace geminid::trainer
