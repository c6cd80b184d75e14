#include "tools/trainer/mlp_half.h"

#include <algorithm>
#include <type_traits>

#include "base/status_macros.h"
#include "tools/trainer/norm_layer.h"

namespace geminid::trainer {
namespace {

// Some columns of the MLP for all tokens, dense. `up` is absent without a gate.
template <typename T>
struct Columns {
  Scratch<T> storage;
  Matrix<T> input, up, activated;

  // Input and up are those in `kept`, if there is one.
  static absl::StatusOr<Columns> Allocate(const Resources& resources, size_t tokens, size_t first,
                                          size_t count, bool gated, const KeptMlp<T>* kept) {
    Columns result;
    const size_t size = tokens * count;
    const size_t inputs = gated ? 2 : 1;
    GEMINID_ASSIGN_OR_RETURN(
        result.storage,
        Scratch<T>::Allocate(resources, size * (1 + (kept == nullptr ? inputs : 0))));
    T* const data = result.storage.data();
    result.activated = Matrix<T>(data, tokens, count);
    const size_t at = tokens * first;
    result.input =
        Matrix<T>(kept == nullptr ? data + size : kept->input.data() + at, tokens, count);
    if (gated) {
      result.up =
          Matrix<T>(kept == nullptr ? data + 2 * size : kept->up.data() + at, tokens, count);
    }
    return result;
  }
};

// Computes what the activation reads, columns [first, first + count), from n.
template <typename T>
absl::Status Project(const Resources& resources, const MlpPlaces& places, const ParameterUse& use,
                     size_t first, Matrix<const T> n, const Columns<T>& columns) {
  const size_t count = columns.input.cols;
  GEMINID_RETURN_IF_ERROR(Forward<T>(
      resources, n, WeightOf<T>(use, places.input).Outputs(first, count), columns.input));
  if (!places.up) return absl::OkStatus();
  return Forward<T>(resources, n, WeightOf<T>(use, *places.up).Outputs(first, count), columns.up);
}

template <typename T>
absl::Status Activate(const Resources& resources, const Columns<T>& columns) {
  return KernelsFor<T>(resources).Activate(resources, columns.input, columns.up.data,
                                           columns.activated.data);
}

// Turns columns.input (and up) into their gradients.
template <typename T>
absl::Status ActivateBackward(const Resources& resources, Matrix<const T> dy,
                              const Columns<T>& columns) {
  return KernelsFor<T>(resources).ActivateBackward(resources, dy, columns.input.data,
                                                   columns.up.data);
}

template <typename T>
absl::Status ColumnsBackward(const Resources& resources, const MlpPlaces& places, ParameterUse& use,
                             size_t first, size_t count, Matrix<const T> n,
                             Matrix<const T> gradient, Matrix<float> dn, const KeptMlp<T>* kept) {
  GEMINID_ASSIGN_OR_RETURN(auto columns, Columns<T>::Allocate(resources, n.rows, first, count,
                                                              places.up.has_value(), kept));
  if (kept == nullptr) {
    GEMINID_RETURN_IF_ERROR(Project<T>(resources, places, use, first, n, columns));
  }
  GEMINID_RETURN_IF_ERROR(Activate<T>(resources, columns));
  {
    GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, n.rows * count));
    const Matrix<T> dactivated(storage.data(), n.rows, count);
    GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
        resources, gradient, WeightOf<T>(use, places.output).Inputs(first, count), dactivated));
    GEMINID_RETURN_IF_ERROR(
        BackwardWeight<T>(resources, gradient, columns.activated,
                          GradientOf<T>(use, places.output).Inputs(first, count)));
    GEMINID_RETURN_IF_ERROR(ActivateBackward<T>(resources, dactivated, columns));
  }
  const auto project_back = [&](const LinearPlace& place, Matrix<const T> dy, bool accumulate) {
    GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
        resources, dy, WeightOf<T>(use, place).Outputs(first, count), dn, accumulate));
    return BackwardWeight<T>(resources, dy, n, GradientOf<T>(use, place).Outputs(first, count));
  };
  GEMINID_RETURN_IF_ERROR(project_back(places.input, columns.input, first != 0));
  return places.up ? project_back(*places.up, columns.up, true) : absl::OkStatus();
}

// The sum over the pieces of an MLP's output: in fp32, and in `out` itself where that is fp32.
template <typename T>
class OutputSum {
 public:
  // Begins with x, or with zeros where dropout comes before x is added.
  static absl::StatusOr<OutputSum> Begin(const Resources& resources, const HalfContext& context,
                                         const T* x, T* out) {
    OutputSum sum(context, x, out);
    const size_t size = sum.rows_ * sum.cols_;
    if constexpr (std::is_same_v<T, float>) {
      sum.data_ = out;
    } else {
      GEMINID_ASSIGN_OR_RETURN(sum.storage_, Scratch<float>::Allocate(resources, size));
      sum.data_ = sum.storage_.data();
    }
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    if (sum.drops()) {
      GEMINID_RETURN_IF_ERROR(math.Zero(resources, sum.data_, size * sizeof(float)));
    } else {
      GEMINID_RETURN_IF_ERROR(math.Widen(resources, x, size, sum.data_));
    }
    return sum;
  }

  Matrix<float> values() const { return {data_, rows_, cols_}; }

  // Adds the bias, if there is one, and leaves the half's output in `out`. `spare` has room for as
  // many elements.
  absl::Status Finish(const Resources& resources, const T* bias, T* spare) {
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    if (bias != nullptr) GEMINID_RETURN_IF_ERROR(math.AddBias(resources, bias, values()));
    if (!drops()) {
      return data_ == Address(out_) ? absl::OkStatus() : math.Round(resources, data_, size(), out_);
    }
    GEMINID_RETURN_IF_ERROR(math.Round(resources, data_, size(), spare));
    GEMINID_RETURN_IF_ERROR(
        math.Copy(resources, Matrix<const T>(x_, rows_, cols_), Matrix<T>(out_, rows_, cols_)));
    return math.AddDropped(resources, context_->dropout, Matrix<const T>(spare, rows_, cols_),
                           out_);
  }

 private:
  OutputSum(const HalfContext& context, const T* x, T* out)
      : context_(&context),
        x_(x),
        out_(out),
        rows_(context.shape.tokens()),
        cols_(context.config->hidden) {}

  bool drops() const { return context_->dropout.dropout.active(); }
  size_t size() const { return rows_ * cols_; }
  static const void* Address(const T* data) { return data; }

  const HalfContext* context_;
  const T* x_;
  T* out_;
  size_t rows_;
  size_t cols_;
  Scratch<float> storage_;
  float* data_ = nullptr;
};

}  // namespace

template <typename T>
absl::StatusOr<KeptMlp<T>> KeptMlp<T>::Allocate(const Resources& resources,
                                                const HalfContext& context) {
  const size_t size = context.shape.tokens() * context.config->intermediate;
  KeptMlp kept;
  GEMINID_ASSIGN_OR_RETURN(kept.input, Scratch<T>::Allocate(resources, size));
  if (context.config->family == Family::kLlama) {
    GEMINID_ASSIGN_OR_RETURN(kept.up, Scratch<T>::Allocate(resources, size));
  }
  return kept;
}

template <typename T>
absl::Status MlpHalfForward(const Resources& resources, const HalfContext& context,
                            const MlpPlaces& places, const ParameterUse& use, const T* x, T* out,
                            const KeptMlp<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  const size_t width = context.config->intermediate;
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, tokens * hidden));
  const Matrix<T> n(storage.data(), tokens, hidden);
  {
    GEMINID_ASSIGN_OR_RETURN(auto norm,
                             NormLayer<T>::Create(resources, context, places.norm, tokens));
    GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, n.data));
  }
  GEMINID_ASSIGN_OR_RETURN(auto sum, OutputSum<T>::Begin(resources, context, x, out));
  const LinearView<const T> output = WeightOf<T>(use, places.output);
  for (size_t first = 0; first < width; first += context.tiling.mlp_columns) {
    const size_t count = std::min(context.tiling.mlp_columns, width - first);
    GEMINID_ASSIGN_OR_RETURN(auto columns, Columns<T>::Allocate(resources, tokens, first, count,
                                                                places.up.has_value(), kept));
    GEMINID_RETURN_IF_ERROR(Project<T>(resources, places, use, first, n, columns));
    GEMINID_RETURN_IF_ERROR(Activate<T>(resources, columns));
    GEMINID_RETURN_IF_ERROR(
        (Forward<T, float>(resources, columns.activated, output.Inputs(first, count), sum.values(),
                           /*accumulate=*/true)));
  }
  return sum.Finish(resources, output.bias, n.data);  // nobody needs the norm any more
}

template <typename T>
absl::Status MlpHalfBackward(const Resources& resources, const HalfContext& context,
                             const MlpPlaces& places, ParameterUse& use, const T* x, T* gradient,
                             const KeptMlp<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  const size_t width = context.config->intermediate;
  GEMINID_ASSIGN_OR_RETURN(auto norm,
                           NormLayer<T>::Create(resources, context, places.norm, tokens));
  GEMINID_ASSIGN_OR_RETURN(auto n_storage, Scratch<T>::Allocate(resources, tokens * hidden));
  GEMINID_ASSIGN_OR_RETURN(auto dn_storage, Scratch<float>::Allocate(resources, tokens * hidden));
  const Matrix<T> n(n_storage.data(), tokens, hidden);
  const Matrix<float> dn(dn_storage.data(), tokens, hidden);
  GEMINID_ASSIGN_OR_RETURN(const Dropped<T> dropped,
                           Dropped<T>::Of(resources, context.dropout, tokens, gradient));
  const Matrix<const T> dy(dropped.data, tokens, hidden);
  GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, n.data));
  GEMINID_RETURN_IF_ERROR(ClearAdapterGradients<T>(resources, use, places.input));
  if (places.up) {
    GEMINID_RETURN_IF_ERROR(ClearAdapterGradients<T>(resources, use, *places.up));
  }
  GEMINID_RETURN_IF_ERROR(ClearAdapterGradients<T>(resources, use, places.output));
  for (size_t first = 0; first < width; first += context.tiling.mlp_columns) {
    const size_t count = std::min(context.tiling.mlp_columns, width - first);
    GEMINID_RETURN_IF_ERROR(
        ColumnsBackward<T>(resources, places, use, first, count, n, dy, dn, kept));
  }
  if (places.output.bias) {
    GEMINID_RETURN_IF_ERROR(
        BackwardBias<T>(resources, dy, GradientOf<T>(use, *places.output.bias)));
  }
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Round(resources, dn.data, dn.size(), n.data));
  return norm.Backward(use, n.data, x, gradient, gradient);
}

#define GEMINID_INSTANTIATE(T)                                                                  \
  template struct KeptMlp<T>;                                                                   \
  template absl::Status MlpHalfForward(const Resources&, const HalfContext&, const MlpPlaces&,  \
                                       const ParameterUse&, const T*, T*, const KeptMlp<T>*);   \
  template absl::Status MlpHalfBackward(const Resources&, const HalfContext&, const MlpPlaces&, \
                                        ParameterUse&, const T*, T*, const KeptMlp<T>*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
