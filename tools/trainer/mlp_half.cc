#include "tools/trainer/mlp_half.h"

#include <algorithm>

#include "base/status_macros.h"
#include "kernels/model/activation/gelu.h"
#include "kernels/model/activation/swiglu.h"
#include "tools/trainer/norm_layer.h"

namespace geminid::trainer {
namespace {

// Some columns of the MLP for some tokens, dense. `up` is absent without a gate.
template <typename T>
struct Columns {
  Scratch<T> storage;
  Matrix<T> input, up, activated;

  static absl::StatusOr<Columns> Allocate(zero::Workspace& workspace, size_t tokens, size_t columns,
                                          bool gated) {
    Columns result;
    GEMINID_ASSIGN_OR_RETURN(result.storage,
                             Scratch<T>::Allocate(workspace, tokens * columns * (gated ? 3 : 2)));
    result.input = Matrix<T>(result.storage.data(), tokens, columns);
    result.activated = Matrix<T>(result.input.data + result.input.size(), tokens, columns);
    if (gated) {
      result.up = Matrix<T>(result.activated.data + result.activated.size(), tokens, columns);
    }
    return result;
  }
};

// Computes columns [first, first + count) of the MLP's inner activation from n.
template <typename T>
absl::Status Activate(zero::Workspace& workspace, const MlpPlaces& places, const ParameterUse& use,
                      size_t first, Matrix<const T> n, const Columns<T>& columns) {
  const size_t count = columns.input.cols;
  GEMINID_RETURN_IF_ERROR(Forward<T>(
      workspace, n, WeightOf<T>(use, places.input).Outputs(first, count), columns.input));
  if (!places.up) {
    return FromKernel(
        kernels::GeluForward<T>(columns.input.data, columns.input.size(), columns.activated.data),
        "GeluForward");
  }
  GEMINID_RETURN_IF_ERROR(
      Forward<T>(workspace, n, WeightOf<T>(use, *places.up).Outputs(first, count), columns.up));
  return FromKernel(
      kernels::SwigluForward<T>({.rows = n.rows, .cols = count, .gate_up_stride = count},
                                columns.input.data, columns.up.data, columns.activated.data),
      "SwigluForward");
}

// Turns columns.input (and up) into their gradients.
template <typename T>
absl::Status ActivateBackward(Matrix<const T> dy, const Columns<T>& columns) {
  T* input = columns.input.data;
  if (columns.up.data == nullptr) {
    return FromKernel(kernels::GeluBackward<T>(dy.data, input, dy.size(), input), "GeluBackward");
  }
  T* up = columns.up.data;
  return FromKernel(
      kernels::SwigluBackward<T>({.rows = dy.rows, .cols = dy.cols, .gate_up_stride = dy.cols},
                                 dy.data, input, up, input, up),
      "SwigluBackward");
}

template <typename T>
absl::Status ColumnsBackward(zero::Workspace& workspace, const MlpPlaces& places, ParameterUse& use,
                             size_t first, size_t count, Matrix<const T> n,
                             Matrix<const T> gradient, Matrix<float> dn) {
  GEMINID_ASSIGN_OR_RETURN(auto columns,
                           Columns<T>::Allocate(workspace, n.rows, count, places.up.has_value()));
  GEMINID_RETURN_IF_ERROR(Activate<T>(workspace, places, use, first, n, columns));
  {
    GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(workspace, n.rows * count));
    const Matrix<T> dactivated(storage.data(), n.rows, count);
    GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
        workspace, gradient, WeightOf<T>(use, places.output).Inputs(first, count), dactivated));
    GEMINID_RETURN_IF_ERROR(
        BackwardWeight<T>(workspace, gradient, columns.activated,
                          GradientOf<T>(use, places.output).Inputs(first, count)));
    GEMINID_RETURN_IF_ERROR(ActivateBackward<T>(dactivated, columns));
  }
  const auto project_back = [&](const LinearPlace& place, Matrix<const T> dy, bool accumulate) {
    GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
        workspace, dy, WeightOf<T>(use, place).Outputs(first, count), dn, accumulate));
    return BackwardWeight<T>(workspace, dy, n, GradientOf<T>(use, place).Outputs(first, count));
  };
  GEMINID_RETURN_IF_ERROR(project_back(places.input, columns.input, first != 0));
  return places.up ? project_back(*places.up, columns.up, true) : absl::OkStatus();
}

}  // namespace

template <typename T>
absl::Status MlpHalfForward(zero::Workspace& workspace, const HalfContext& context,
                            const MlpPlaces& places, const ParameterUse& use, const T* x, T* out) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  std::copy_n(x, tokens * hidden, out);
  const Matrix<T> sum(out, tokens, hidden);
  for (size_t first = 0; first < tokens; first += context.tiling.tokens) {
    const size_t rows = std::min(context.tiling.tokens, tokens - first);
    GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(workspace, rows * hidden));
    const Matrix<T> n(storage.data(), rows, hidden);
    GEMINID_ASSIGN_OR_RETURN(auto norm,
                             NormLayer<T>::Create(workspace, context, places.norm, rows));
    GEMINID_RETURN_IF_ERROR(norm.Forward(use, x + first * hidden, n.data));
    GEMINID_ASSIGN_OR_RETURN(
        auto columns,
        Columns<T>::Allocate(workspace, rows, context.config->intermediate, places.up.has_value()));
    GEMINID_RETURN_IF_ERROR(Activate<T>(workspace, places, use, 0, n, columns));
    const auto output = WeightOf<T>(use, places.output);
    if (!context.dropout.dropout.active()) {
      GEMINID_RETURN_IF_ERROR(Forward<T>(workspace, columns.activated, output,
                                         sum.Rows(first, rows), /*accumulate=*/true));
      continue;
    }
    const Matrix<T>& added = n;  // nobody needs the norm any more
    GEMINID_RETURN_IF_ERROR(Forward<T>(workspace, columns.activated, output, added));
    AddDropout(context.dropout, first, rows, added.data, sum.Rows(first, rows).data);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status MlpHalfBackward(zero::Workspace& workspace, const HalfContext& context,
                             const MlpPlaces& places, ParameterUse& use, const T* x, T* gradient) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  const size_t width = context.config->intermediate;
  GEMINID_ASSIGN_OR_RETURN(auto norm,
                           NormLayer<T>::Create(workspace, context, places.norm, tokens));
  GEMINID_ASSIGN_OR_RETURN(auto n_storage, Scratch<T>::Allocate(workspace, tokens * hidden));
  GEMINID_ASSIGN_OR_RETURN(auto dn_storage, Scratch<float>::Allocate(workspace, tokens * hidden));
  const Matrix<T> n(n_storage.data(), tokens, hidden);
  const Matrix<float> dn(dn_storage.data(), tokens, hidden);
  GEMINID_ASSIGN_OR_RETURN(const Dropped<T> dropped,
                           Dropped<T>::Of(workspace, context.dropout, tokens, gradient));
  const Matrix<const T> dy(dropped.data, tokens, hidden);
  GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, n.data));
  ClearAdapterGradients<T>(use, places.input);
  if (places.up) ClearAdapterGradients<T>(use, *places.up);
  ClearAdapterGradients<T>(use, places.output);
  for (size_t first = 0; first < width; first += context.tiling.mlp_columns) {
    const size_t count = std::min(context.tiling.mlp_columns, width - first);
    GEMINID_RETURN_IF_ERROR(ColumnsBackward<T>(workspace, places, use, first, count, n, dy, dn));
  }
  if (places.output.bias) {
    GEMINID_RETURN_IF_ERROR(
        BackwardBias<T>(workspace, dy, GradientOf<T>(use, *places.output.bias)));
  }
  GEMINID_RETURN_IF_ERROR(Round(dn.data, dn.size(), n.data));
  return norm.Backward(use, n.data, x, gradient, gradient);
}

#define GEMINID_INSTANTIATE(T)                                                                  \
  template absl::Status MlpHalfForward(zero::Workspace&, const HalfContext&, const MlpPlaces&,  \
                                       const ParameterUse&, const T*, T*);                      \
  template absl::Status MlpHalfBackward(zero::Workspace&, const HalfContext&, const MlpPlaces&, \
                                        ParameterUse&, const T*, T*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
