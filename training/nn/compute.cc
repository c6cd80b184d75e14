#include "training/nn/compute.h"

#include "base/status_macros.h"
#include "kernels/model/matmul/matmul.h"
#include "training/nn/later_gradients.h"

namespace geminid::trainer {
namespace {

using kernels::BFloat16;
using kernels::MatmulShape;
using kernels::Transpose;

template <typename T, typename Out>
absl::Status Multiply(const Resources& resources, const MatmulShape& shape, const T* a, const T* b,
                      const Out* bias, Out* c) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  if constexpr (std::is_same_v<T, Out>) {
    return math.Multiply(resources, shape, a, b, bias, c);
  } else {
    return math.MultiplyWide(resources, shape, a, b, c);
  }
}

size_t FirstWeight(const LinearPlace& place) {
  return place.first_output * (place.layout == Layout::kOutIn ? place.stride : 1);
}

}  // namespace

template <typename T>
AdapterView<T> AdapterOf(const ParameterUse& use, const LinearPlace& place) {
  if (!place.adapter) return {};
  const AdapterPlace& adapter = *place.adapter;
  return {.a = WeightOf<T>(use, adapter.a),
          .b = WeightOf<T>(use, adapter.b) + place.first_output * adapter.rank,
          .rank = adapter.rank,
          .a_stride = adapter.in,
          .scale = static_cast<float>(adapter.scale)};
}

template <typename T>
LinearView<const T> WeightOf(const ParameterUse& use, const LinearPlace& place) {
  return {.weight = WeightOf<T>(use, place.weight) + FirstWeight(place),
          .bias = place.bias ? WeightOf<T>(use, *place.bias) + place.first_output : nullptr,
          .layout = place.layout,
          .in = place.in,
          .out = place.out,
          .stride = place.stride,
          .adapter = AdapterOf<T>(use, place)};
}

template <typename T>
LinearView<T> GradientOf(ParameterUse& use, const LinearPlace& place) {
  const auto from = [](T* gradient, size_t first) {
    return gradient == nullptr ? nullptr : gradient + first;
  };
  LinearView<T> view = {
      .weight = from(GradientOf<T>(use, place.weight), FirstWeight(place)),
      .bias = place.bias ? from(GradientOf<T>(use, *place.bias), place.first_output) : nullptr,
      .layout = place.layout,
      .in = place.in,
      .out = place.out,
      .stride = place.stride,
      .adapter = AdapterOf<T>(use, place)};
  if (place.adapter) {
    view.adapter.da = GradientOf<T>(use, place.adapter->a);
    view.adapter.db =
        from(GradientOf<T>(use, place.adapter->b), place.first_output * place.adapter->rank);
  }
  return view;
}

template <typename T>
absl::Status ClearAdapterGradients(const Resources& resources, ParameterUse& use,
                                   const LinearPlace& place) {
  if (!place.adapter) return absl::OkStatus();
  if (resources.later != nullptr) {
    resources.later->Add([&place](const Resources& then, ParameterUse& used) {
      return ClearAdapterGradients<T>(then, used, place);
    });
    return absl::OkStatus();
  }
  const AdapterView<T> adapter = GradientOf<T>(use, place).adapter;
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  if (adapter.da != nullptr && !use.GradientAccumulates(place.adapter->a)) {
    GEMINID_RETURN_IF_ERROR(
        math.Zero(resources, adapter.da, adapter.rank * adapter.a_stride * sizeof(T)));
  }
  if (adapter.db == nullptr || use.GradientAccumulates(place.adapter->b)) return absl::OkStatus();
  return math.Zero(resources, adapter.db, adapter.rank * place.out * sizeof(T));
}

absl::Status GradientsWritten(ParameterUse& use, std::span<const ParameterId> ids) {
  for (const ParameterId id : ids) {
    if (use.Gradient(id) != nullptr) GEMINID_RETURN_IF_ERROR(use.GradientWritten(id));
  }
  return absl::OkStatus();
}

namespace {

// scale x M, rounded to T: [x.rows, out]. M is [out, in] or [in, out], dense except for its stride.
template <typename T>
struct LowRankProduct {
  Scratch<T> storage;
  Matrix<T> values;

  static absl::StatusOr<LowRankProduct> Compute(const Resources& resources, Matrix<const T> x,
                                                const T* m, size_t stride, Layout layout,
                                                size_t out, float scale) {
    LowRankProduct thin;
    GEMINID_ASSIGN_OR_RETURN(thin.storage, Scratch<T>::Allocate(resources, x.rows * out));
    thin.values = Matrix<T>(thin.storage.data(), x.rows, out);
    const MatmulShape shape = {
        .m = x.rows,
        .n = out,
        .k = x.cols,
        .transpose_b = layout == Layout::kOutIn ? Transpose::kYes : Transpose::kNo,
        .a_stride = x.stride,
        .b_stride = stride};
    GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).MultiplyScaled(resources, shape, scale, x.data,
                                                                    m, thin.values.data));
    return thin;
  }
};

// y += scale (x A) B
template <typename T, typename Out>
absl::Status AddAdapter(const Resources& resources, Matrix<const T> x,
                        const AdapterView<T>& adapter, Matrix<Out> y) {
  if (adapter.a == nullptr) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const LowRankProduct<T> inner,
                           LowRankProduct<T>::Compute(resources, x, adapter.a, adapter.a_stride,
                                                      Layout::kOutIn, adapter.rank, adapter.scale));
  const MatmulShape shape = {.m = y.rows,
                             .n = y.cols,
                             .k = adapter.rank,
                             .transpose_b = Transpose::kYes,
                             .accumulate = true,
                             .b_stride = adapter.rank,
                             .c_stride = y.stride};
  return Multiply<T, Out>(resources, shape, inner.values.data, adapter.b, nullptr, y.data);
}

// dx += scale (dy B^T) A^T
template <typename T, typename Out>
absl::Status AddAdapterBackward(const Resources& resources, Matrix<const T> dy,
                                const AdapterView<T>& adapter, Matrix<Out> dx) {
  if (adapter.a == nullptr) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const LowRankProduct<T> inner,
                           LowRankProduct<T>::Compute(resources, dy, adapter.b, adapter.rank,
                                                      Layout::kInOut, adapter.rank, adapter.scale));
  const MatmulShape shape = {.m = dx.rows,
                             .n = dx.cols,
                             .k = adapter.rank,
                             .accumulate = true,
                             .b_stride = adapter.a_stride,
                             .c_stride = dx.stride};
  return Multiply<T, Out>(resources, shape, inner.values.data, adapter.a, nullptr, dx.data);
}

// dA += scale (dy B^T)^T x and dB += dy^T scale (x A).
template <typename T>
absl::Status AdapterGradients(const Resources& resources, Matrix<const T> dy, Matrix<const T> x,
                              const AdapterView<T>& adapter) {
  if (adapter.da != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(
        const LowRankProduct<T> inner,
        LowRankProduct<T>::Compute(resources, dy, adapter.b, adapter.rank, Layout::kInOut,
                                   adapter.rank, adapter.scale));
    const MatmulShape shape = {.m = adapter.rank,
                               .n = x.cols,
                               .k = x.rows,
                               .transpose_a = Transpose::kYes,
                               .accumulate = true,
                               .a_stride = adapter.rank,
                               .b_stride = x.stride,
                               .c_stride = adapter.a_stride};
    GEMINID_RETURN_IF_ERROR(
        (Multiply<T, T>(resources, shape, inner.values.data, x.data, nullptr, adapter.da)));
  }
  if (adapter.db == nullptr) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const LowRankProduct<T> inner,
                           LowRankProduct<T>::Compute(resources, x, adapter.a, adapter.a_stride,
                                                      Layout::kOutIn, adapter.rank, adapter.scale));
  const MatmulShape shape = {.m = dy.cols,
                             .n = adapter.rank,
                             .k = dy.rows,
                             .transpose_a = Transpose::kYes,
                             .accumulate = true,
                             .a_stride = dy.stride,
                             .b_stride = adapter.rank,
                             .c_stride = adapter.rank};
  return Multiply<T, T>(resources, shape, dy.data, inner.values.data, nullptr, adapter.db);
}

}  // namespace

template <typename T, typename Out>
absl::Status Forward(const Resources& resources, Matrix<const T> x, const LinearView<const T>& w,
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
    GEMINID_RETURN_IF_ERROR((Multiply<T, Out>(resources, shape, x.data, w.weight, w.bias, y.data)));
    return AddAdapter<T, Out>(resources, x, w.adapter, y);
  } else {
    if (w.bias != nullptr) {
      return absl::InternalError("a layer with a bias has outputs of the type of its weights");
    }
    GEMINID_RETURN_IF_ERROR(
        (Multiply<T, Out>(resources, shape, x.data, w.weight, nullptr, y.data)));
    return AddAdapter<T, Out>(resources, x, w.adapter, y);
  }
}

template <typename T, typename Out>
absl::Status BackwardInput(const Resources& resources, Matrix<const T> dy,
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
  GEMINID_RETURN_IF_ERROR(
      (Multiply<T, Out>(resources, shape, dy.data, w.weight, nullptr, dx.data)));
  return AddAdapterBackward<T, Out>(resources, dy, w.adapter, dx);
}

template <typename T>
absl::Status BackwardBias(const Resources& resources, Matrix<const T> dy, T* db) {
  if (db == nullptr) return absl::OkStatus();
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  if (dy.stride == dy.cols) return math.ColumnSum(resources, dy, db);
  // Sums the padding between rows of logits, too, and ignores these sums.
  GEMINID_ASSIGN_OR_RETURN(auto sums, Scratch<T>::Allocate(resources, dy.stride));
  GEMINID_RETURN_IF_ERROR(
      math.ColumnSum(resources, Matrix<const T>(dy.data, dy.rows, dy.stride), sums.data()));
  return math.Copy(resources, Matrix<const T>(sums.data(), 1, dy.cols), Matrix<T>(db, 1, dy.cols));
}

template <typename T>
absl::Status BackwardWeight(const Resources& resources, Matrix<const T> dy, Matrix<const T> x,
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
  if (dw.weight != nullptr) {
    GEMINID_RETURN_IF_ERROR((Multiply<T, T>(resources, shape, a.data, b.data, nullptr, dw.weight)));
  }
  GEMINID_RETURN_IF_ERROR(AdapterGradients<T>(resources, dy, x, dw.adapter));
  return BackwardBias<T>(resources, dy, dw.bias);
}

template <typename T>
absl::Status BackwardBias(const Resources& resources, Matrix<const T> dy, const LinearPlace& place,
                          ParameterUse& use) {
  if (!place.bias) return absl::OkStatus();
  if (resources.later == nullptr) {
    return BackwardBias<T>(resources, dy, GradientOf<T>(use, *place.bias));
  }
  GEMINID_ASSIGN_OR_RETURN(const Matrix<const T> kept, resources.later->Keep(resources, dy));
  resources.later->Add([kept, &place](const Resources& then, ParameterUse& used) {
    return BackwardBias<T>(then, kept, place, used);
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status BackwardWeight(const Resources& resources, Matrix<const T> dy, Matrix<const T> x,
                            const LinearSlice& piece, ParameterUse& use, bool adds) {
  if (resources.later == nullptr) {
    LinearView<T> dw = GradientOf<T>(use, piece.place);
    if (piece.of == LinearSlice::Of::kInputs) dw = dw.Inputs(piece.first, piece.count);
    if (piece.of == LinearSlice::Of::kOutputs) dw = dw.Outputs(piece.first, piece.count);
    return BackwardWeight<T>(resources, dy, x, dw,
                             adds && use.GradientAccumulates(piece.place.weight));
  }
  GEMINID_ASSIGN_OR_RETURN(const Matrix<const T> kept_dy, resources.later->Keep(resources, dy));
  GEMINID_ASSIGN_OR_RETURN(const Matrix<const T> kept_x, resources.later->Keep(resources, x));
  resources.later->Add([=](const Resources& then, ParameterUse& used) {
    return BackwardWeight<T>(then, kept_dy, kept_x, piece, used, adds);
  });
  return absl::OkStatus();
}

#define GEMINID_INSTANTIATE(T)                                                                 \
  template LinearView<const T> WeightOf(const ParameterUse&, const LinearPlace&);              \
  template LinearView<T> GradientOf(ParameterUse&, const LinearPlace&);                        \
  template absl::Status ClearAdapterGradients<T>(const Resources&, ParameterUse&,              \
                                                 const LinearPlace&);                          \
  template absl::Status Forward(const Resources&, Matrix<const T>, const LinearView<const T>&, \
                                Matrix<T>, bool);                                              \
  template absl::Status BackwardInput(const Resources&, Matrix<const T>,                       \
                                      const LinearView<const T>&, Matrix<T>, bool);            \
  template absl::Status BackwardBias(const Resources&, Matrix<const T>, T*);                   \
  template absl::Status BackwardBias(const Resources&, Matrix<const T>, const LinearPlace&,    \
                                     ParameterUse&);                                           \
  template absl::Status BackwardWeight(const Resources&, Matrix<const T>, Matrix<const T>,     \
                                       const LinearView<T>&, bool);                            \
  template absl::Status BackwardWeight(const Resources&, Matrix<const T>, Matrix<const T>,     \
                                       const LinearSlice&, ParameterUse&, bool);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(BFloat16)
#undef GEMINID_INSTANTIATE
template absl::Status Forward(const Resources&, Matrix<const BFloat16>,
                              const LinearView<const BFloat16>&, Matrix<float>, bool);
template absl::Status BackwardInput(const Resources&, Matrix<const BFloat16>,
                                    const LinearView<const BFloat16>&, Matrix<float>, bool);

}  // namespace geminid::trainer
