#include "tools/trainer/ends.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/embedding/embedding.h"
#include "tools/trainer/norm_layer.h"

namespace geminid::trainer {
namespace {

kernels::EmbeddingShape ShapeOf(const HalfContext& context) {
  return {.tokens = context.shape.tokens(),
          .hidden = context.config->hidden,
          .vocabulary = context.config->vocabulary,
          .first_row = 0,
          .rows = context.config->vocabulary};
}

// The loss of some tokens; their rows of dlogits are written, if there are any.
template <typename T>
absl::StatusOr<double> LossOfRows(const Resources& resources, Matrix<const T> n,
                                  const LinearView<const T>& output, const int32_t* targets,
                                  float gradient_scale, Matrix<T> dlogits) {
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<float>::Allocate(resources, n.rows * output.out));
  const Matrix<float> logits(storage.data(), n.rows, output.out);
  GEMINID_RETURN_IF_ERROR((Forward<T, float>(resources, n, output, logits)));
  // Rows are summed in pieces that do not depend on the number of threads.
  constexpr size_t kRows = 16;
  float* const gradients = dlogits.data == nullptr ? nullptr : logits.data;
  std::vector<kernels::CrossEntropyResult> parts(kernels::GranuleCount(logits.rows, kRows));
  GEMINID_RETURN_IF_ERROR(FromKernel(
      kernels::RunTasks(resources.threads, parts.size(),
                        [&](size_t index, size_t) {
                          const auto piece = kernels::GranuleAt(index, logits.rows, kRows);
                          const size_t at = piece.begin * logits.stride;
                          return kernels::CrossEntropy<float>(
                              {.tokens = piece.end - piece.begin,
                               .vocabulary = logits.cols,
                               .row_stride = logits.stride},
                              logits.data + at, targets + piece.begin, gradient_scale,
                              gradients == nullptr ? nullptr : gradients + at, nullptr,
                              &parts[index]);
                        }),
      "CrossEntropy"));
  double loss_sum = 0;
  for (const kernels::CrossEntropyResult& part : parts) loss_sum += part.loss_sum;
  if (gradients != nullptr) {
    GEMINID_RETURN_IF_ERROR(Round(resources, logits.data, logits.size(), dlogits.data));
  }
  return loss_sum;
}

}  // namespace

template <typename T>
absl::Status EmbeddingForward(const HalfContext& context, const ModelParameters& parameters,
                              const ParameterUse& use, const int32_t* tokens, T* x) {
  const T* positions = parameters.position_table
                           ? WeightOf<T>(use, *parameters.position_table) +
                                 context.first_position * context.config->hidden
                           : nullptr;
  return FromKernel(kernels::EmbeddingForward<T>(ShapeOf(context), tokens,
                                                 WeightOf<T>(use, parameters.token_table),
                                                 positions, context.shape.sequence_length, x),
                    "EmbeddingForward");
}

template <typename T>
absl::Status EmbeddingBackward(const Resources& resources, const HalfContext& context,
                               const ModelParameters& parameters, ParameterUse& use,
                               const int32_t* tokens, const T* gradient) {
  const kernels::EmbeddingShape shape = ShapeOf(context);
  if (T* const table = GradientOf<T>(use, parameters.token_table)) {
    const size_t bytes = kernels::EmbeddingWorkspaceBytes(shape);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    GEMINID_RETURN_IF_ERROR(
        FromKernel(kernels::EmbeddingBackward<T>(shape, tokens, gradient, table,
                                                 use.GradientAccumulates(parameters.token_table),
                                                 scratch.data(), bytes),
                   "EmbeddingBackward"));
  }
  T* const positions =
      parameters.position_table ? GradientOf<T>(use, *parameters.position_table) : nullptr;
  if (positions == nullptr) return absl::OkStatus();
  const ParameterId id = *parameters.position_table;
  const size_t length = context.shape.sequence_length;
  if (!use.GradientAccumulates(id)) {
    // Positions that no sequence reaches: zero is all bits zero in both types.
    std::fill(positions + length * shape.hidden,
              positions + context.config->position_rows() * shape.hidden, T{});
  }
  return FromKernel(
      kernels::PositionEmbeddingBackward<T>(context.shape.sequences, length, shape.hidden, gradient,
                                            positions, use.GradientAccumulates(id)),
      "PositionEmbeddingBackward");
}

template <typename T>
absl::StatusOr<double> OutputAndLoss(const Resources& resources, const HalfContext& context,
                                     const ModelParameters& parameters, ParameterUse& use,
                                     const T* x, const int32_t* targets, float gradient_scale,
                                     T* gradient) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  const size_t vocabulary = context.config->vocabulary;
  GEMINID_ASSIGN_OR_RETURN(auto norm,
                           NormLayer<T>::Create(resources, context, parameters.final_norm, tokens));
  GEMINID_ASSIGN_OR_RETURN(auto n_storage, Scratch<T>::Allocate(resources, tokens * hidden));
  GEMINID_ASSIGN_OR_RETURN(auto dlogits_storage,
                           Scratch<T>::Allocate(resources, tokens * vocabulary));
  const Matrix<T> n(n_storage.data(), tokens, hidden);
  const Matrix<T> dlogits(dlogits_storage.data(), tokens, vocabulary);
  GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, n.data));

  const LinearView<const T> output = WeightOf<T>(use, parameters.output);
  double loss_sum = 0;
  for (size_t first = 0; first < tokens; first += context.tiling.tokens) {
    const size_t rows = std::min(context.tiling.tokens, tokens - first);
    GEMINID_ASSIGN_OR_RETURN(const double loss,
                             LossOfRows<T>(resources, n.Rows(first, rows), output, targets + first,
                                           gradient_scale, dlogits.Rows(first, rows)));
    loss_sum += loss;
  }
  GEMINID_RETURN_IF_ERROR(
      (BackwardInput<T, T>(resources, dlogits, output, Matrix<T>(gradient, tokens, hidden))));
  GEMINID_RETURN_IF_ERROR(BackwardWeight<T>(resources, dlogits, n,
                                            GradientOf<T>(use, parameters.output),
                                            use.GradientAccumulates(parameters.output.weight)));
  GEMINID_RETURN_IF_ERROR(norm.Backward(use, gradient, x, nullptr, gradient));
  return loss_sum;
}

template <typename T>
absl::StatusOr<double> OutputLoss(const Resources& resources, const HalfContext& context,
                                  const ModelParameters& parameters, const ParameterUse& use,
                                  const T* x, const int32_t* targets) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  const LinearView<const T> output = WeightOf<T>(use, parameters.output);
  double loss_sum = 0;
  for (size_t first = 0; first < tokens; first += context.tiling.tokens) {
    const size_t rows = std::min(context.tiling.tokens, tokens - first);
    GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, rows * hidden));
    const Matrix<T> n(storage.data(), rows, hidden);
    GEMINID_ASSIGN_OR_RETURN(auto norm,
                             NormLayer<T>::Create(resources, context, parameters.final_norm, rows));
    GEMINID_RETURN_IF_ERROR(norm.Forward(use, x + first * hidden, n.data));
    GEMINID_ASSIGN_OR_RETURN(const double loss, LossOfRows<T>(resources, n, output, targets + first,
                                                              /*gradient_scale=*/0, Matrix<T>()));
    loss_sum += loss;
  }
  return loss_sum;
}

template <typename T>
absl::Status LogitsOfToken(const Resources& resources, const HalfContext& context,
                           const ModelParameters& parameters, const ParameterUse& use, const T* x,
                           std::span<float> logits) {
  const size_t hidden = context.config->hidden;
  GEMINID_ASSIGN_OR_RETURN(auto n_storage, Scratch<T>::Allocate(resources, hidden));
  GEMINID_ASSIGN_OR_RETURN(auto logits_storage, Scratch<float>::Allocate(resources, logits.size()));
  const Matrix<T> n(n_storage.data(), 1, hidden);
  GEMINID_ASSIGN_OR_RETURN(auto norm,
                           NormLayer<T>::Create(resources, context, parameters.final_norm, 1));
  GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, n.data));
  GEMINID_RETURN_IF_ERROR(
      (Forward<T, float>(resources, n, WeightOf<T>(use, parameters.output),
                         Matrix<float>(logits_storage.data(), 1, logits.size()))));
  std::copy_n(logits_storage.data(), logits.size(), logits.begin());
  return absl::OkStatus();
}

#define GEMINID_INSTANTIATE(T)                                                                   \
  template absl::Status EmbeddingForward(const HalfContext&, const ModelParameters&,             \
                                         const ParameterUse&, const int32_t*, T*);               \
  template absl::Status EmbeddingBackward(const Resources&, const HalfContext&,                  \
                                          const ModelParameters&, ParameterUse&, const int32_t*, \
                                          const T*);                                             \
  template absl::StatusOr<double> OutputAndLoss(const Resources&, const HalfContext&,            \
                                                const ModelParameters&, ParameterUse&, const T*, \
                                                const int32_t*, float, T*);                      \
  template absl::StatusOr<double> OutputLoss(const Resources&, const HalfContext&,               \
                                             const ModelParameters&, const ParameterUse&,        \
                                             const T*, const int32_t*);                          \
  template absl::Status LogitsOfToken(const Resources&, const HalfContext&,                      \
                                      const ModelParameters&, const ParameterUse&, const T*,     \
                                      std::span<float>);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
