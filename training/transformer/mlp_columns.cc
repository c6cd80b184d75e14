#include "training/transformer/mlp_columns.h"

#include <algorithm>

#include "base/status_macros.h"
#include "training/transformer/host_rows.h"

namespace geminid::trainer {
namespace {

float ToFloat(float value) { return value; }
float ToFloat(kernels::BFloat16 value) { return value.ToFloat(); }
void Store(float value, float* to) { *to = value; }
void Store(float value, kernels::BFloat16* to) { *to = kernels::BFloat16::FromFloat(value); }

// Some columns of the MLP for all rows, dense. Without a gate there is no `up`.
template <typename T>
struct Columns {
  Scratch<T> storage;
  Matrix<T> input, up, activated;
  MlpColumnActivations<T> kept;  // of these columns; null if `input` and `up` point to kept values

  // `input` and `up` point to the kept values if `kept` has all rows.
  static absl::StatusOr<Columns> Allocate(const Resources& resources, size_t rows, size_t first,
                                          size_t count, bool gated,
                                          const MlpColumnActivations<T>& kept) {
    Columns result;
    const size_t size = rows * count, inputs = gated ? 2 : 1;
    const bool there = kept && kept.rows == rows;
    GEMINID_ASSIGN_OR_RETURN(result.storage,
                             Scratch<T>::Allocate(resources, size * (1 + (there ? 0 : inputs))));
    T* const data = result.storage.data();
    result.activated = Matrix<T>(data, rows, count);
    const size_t at = kept.rows * first;
    result.input = Matrix<T>(there ? kept.input + at : data + size, rows, count);
    if (gated) result.up = Matrix<T>(there ? kept.up + at : data + 2 * size, rows, count);
    if (!kept || there) return result;
    result.kept = {kept.input + at, gated ? kept.up + at : nullptr, kept.rows};
    return result;
  }

  absl::Status Keep(const Resources& resources) const {
    GEMINID_RETURN_IF_ERROR(CopyRows(resources, input.data, kept.input));
    return CopyRows(resources, up.data, kept.up);
  }
  absl::Status Recall(const Resources& resources) const {
    GEMINID_RETURN_IF_ERROR(RecallInto(resources, kept.input, input));
    return RecallInto(resources, kept.up, up);
  }

 private:
  absl::Status CopyRows(const Resources& resources, const T* from, T* to) const {
    if (to == nullptr || from == nullptr) return absl::OkStatus();
    const size_t count = activated.cols;
    return KernelsFor<T>(resources).Copy(resources, Matrix<const T>(from, kept.rows, count),
                                         Matrix<T>(to, kept.rows, count));
  }
  absl::Status RecallInto(const Resources& resources, const T* from, Matrix<T> to) const {
    if (from == nullptr) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(CopyRows(resources, from, to.data));
    const Matrix<T> rest = to.Rows(kept.rows, to.rows - kept.rows);
    return KernelsFor<T>(resources).Zero(resources, rest.data, rest.size() * sizeof(T));
  }
};

// Computes columns [first, first + count) of the activation's inputs from x.
template <typename T>
absl::Status Project(const Resources& resources, const MlpMatrices& places, const ParameterUse& use,
                     size_t first, Matrix<const T> x, const Columns<T>& columns) {
  const size_t count = columns.input.cols;
  GEMINID_RETURN_IF_ERROR(Forward<T>(
      resources, x, WeightOf<T>(use, places.input).Outputs(first, count), columns.input));
  if (!places.up) return absl::OkStatus();
  return Forward<T>(resources, x, WeightOf<T>(use, *places.up).Outputs(first, count), columns.up);
}

template <typename T>
absl::Status Activate(const Resources& resources, const MlpMatrices& places,
                      const Columns<T>& columns) {
  return KernelsFor<T>(resources).Activate(resources, places.activation, columns.input,
                                           columns.up.data, columns.activated.data);
}

// Turns columns.input (and up) into the gradients of these values.
template <typename T>
absl::Status ActivateBackward(const Resources& resources, const MlpMatrices& places,
                              Matrix<const T> dy, const Columns<T>& columns) {
  return KernelsFor<T>(resources).ActivateBackward(resources, places.activation, dy,
                                                   columns.input.data, columns.up.data);
}

// A row's output is weight W2 a, and `gradient` is the gradient with respect to weight a. Adds a's
// part to the weight's gradient. Then replaces a by weight a, and `gradient` by the gradient of a.
template <typename T>
absl::Status Weigh(const Resources& resources, const RowWeights& rows, Matrix<T> activated,
                   Matrix<T> gradient) {
  GEMINID_ASSIGN_OR_RETURN(const auto as, HostRows<T>::Of(resources, *rows.memory, activated));
  GEMINID_ASSIGN_OR_RETURN(const auto ds, HostRows<T>::Of(resources, *rows.memory, gradient));
  for (size_t row = 0; row < activated.rows; ++row) {
    T* const a = as.rows().Rows(row, 1).data;
    T* const d = ds.rows().Rows(row, 1).data;
    const float weight = rows.weights[row];
    double sum = 0;
    for (size_t i = 0; i < activated.cols; ++i) {
      sum += static_cast<double>(ToFloat(a[i])) * static_cast<double>(ToFloat(d[i]));
      Store(weight * ToFloat(a[i]), &a[i]);
      Store(weight * ToFloat(d[i]), &d[i]);
    }
    rows.gradients[row] += static_cast<float>(sum);
  }
  GEMINID_RETURN_IF_ERROR(as.GiveBack(resources));
  return ds.GiveBack(resources);
}

// The backward pass of a group of columns.
template <typename T>
struct Backward {
  const Resources& resources;
  const MlpMatrices& places;
  ParameterUse& use;
  const Matrix<const T> x, dy;
  const Matrix<float> dx;
  const MlpColumnActivations<T>& kept;
  const RowWeights& weights;
  const bool adds;  // to dx; else overwrites dx

  absl::Status Run(size_t first, size_t count) const {
    GEMINID_ASSIGN_OR_RETURN(auto columns, Columns<T>::Allocate(resources, x.rows, first, count,
                                                                places.up.has_value(), kept));
    if (!kept) {
      GEMINID_RETURN_IF_ERROR(Project<T>(resources, places, use, first, x, columns));
    } else if (columns.kept) {
      GEMINID_RETURN_IF_ERROR(columns.Recall(resources));
    }
    GEMINID_RETURN_IF_ERROR(Activate<T>(resources, places, columns));
    {
      GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, x.rows * count));
      const Matrix<T> dactivated(storage.data(), x.rows, count);
      GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
          resources, dy, WeightOf<T>(use, places.output).Inputs(first, count), dactivated));
      if (weights.weights != nullptr) {
        GEMINID_RETURN_IF_ERROR(Weigh<T>(resources, weights, columns.activated, dactivated));
      }
      GEMINID_RETURN_IF_ERROR(
          BackwardWeight<T>(resources, dy, columns.activated,
                            {places.output, LinearSlice::Of::kInputs, first, count}, use));
      GEMINID_RETURN_IF_ERROR(ActivateBackward<T>(resources, places, dactivated, columns));
    }
    GEMINID_RETURN_IF_ERROR(ProjectBack(places.input, columns.input, first, adds || first != 0));
    return places.up ? ProjectBack(*places.up, columns.up, first, true) : absl::OkStatus();
  }

 private:
  absl::Status ProjectBack(const LinearPlace& place, Matrix<const T> gradient, size_t first,
                           bool accumulate) const {
    const size_t count = gradient.cols;
    GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
        resources, gradient, WeightOf<T>(use, place).Outputs(first, count), dx, accumulate));
    return BackwardWeight<T>(resources, gradient, x,
                             {place, LinearSlice::Of::kOutputs, first, count}, use);
  }
};

}  // namespace

template <typename T>
absl::Status MlpForward(const Resources& resources, const MlpMatrices& places,
                        const ParameterUse& use, size_t piece, Matrix<const T> x, Matrix<float> sum,
                        const MlpColumnActivations<T>& kept) {
  const LinearView<const T> output = WeightOf<T>(use, places.output);
  const size_t width = places.input.out;
  for (size_t first = 0; first < width; first += piece) {
    const size_t count = std::min(piece, width - first);
    GEMINID_ASSIGN_OR_RETURN(auto columns, Columns<T>::Allocate(resources, x.rows, first, count,
                                                                places.up.has_value(), kept));
    GEMINID_RETURN_IF_ERROR(Project<T>(resources, places, use, first, x, columns));
    GEMINID_RETURN_IF_ERROR(columns.Keep(resources));
    GEMINID_RETURN_IF_ERROR(Activate<T>(resources, places, columns));
    GEMINID_RETURN_IF_ERROR(
        (Forward<T, float>(resources, columns.activated, output.Inputs(first, count), sum,
                           /*accumulate=*/true)));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status MlpBackward(const Resources& resources, const MlpMatrices& places, ParameterUse& use,
                         size_t piece, Matrix<const T> x, Matrix<const T> dy, Matrix<float> dx,
                         const MlpColumnActivations<T>& kept, const RowWeights& weights,
                         bool adds) {
  GEMINID_RETURN_IF_ERROR(ClearAdapterGradients<T>(resources, use, places.input));
  if (places.up) {
    GEMINID_RETURN_IF_ERROR(ClearAdapterGradients<T>(resources, use, *places.up));
  }
  GEMINID_RETURN_IF_ERROR(ClearAdapterGradients<T>(resources, use, places.output));
  const Backward<T> backward = {resources, places, use, x, dy, dx, kept, weights, adds};
  const size_t width = places.input.out;
  for (size_t first = 0; first < width; first += piece) {
    GEMINID_RETURN_IF_ERROR(backward.Run(first, std::min(piece, width - first)));
  }
  return absl::OkStatus();
}

#define GEMINID_INSTANTIATE(T)                                                                   \
  template absl::Status MlpForward(const Resources&, const MlpMatrices&, const ParameterUse&,    \
                                   size_t, Matrix<const T>, Matrix<float>,                       \
                                   const MlpColumnActivations<T>&);                              \
  template absl::Status MlpBackward(const Resources&, const MlpMatrices&, ParameterUse&, size_t, \
                                    Matrix<const T>, Matrix<const T>, Matrix<float>,             \
                                    const MlpColumnActivations<T>&, const RowWeights&, bool);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
