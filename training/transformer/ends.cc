#include "training/transformer/ends.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/embedding/embedding.h"
#include "training/nn/later_gradients.h"
#include "training/nn/layer_share.h"
#include "training/transformer/norm_layer.h"
#include "training/transformer/prediction_head.h"
#include "training/transformer/share_loss.h"

namespace geminid::trainer {
namespace {

// logits += bias. On a GPU the rows are padded.
template <typename T>
absl::Status AddOutputBias(const Resources& resources, const T* bias, Matrix<float> logits) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  if (logits.stride == logits.cols) return math.AddBias(resources, bias, logits);
  GEMINID_ASSIGN_OR_RETURN(auto row, Scratch<T>::Allocate(resources, logits.stride));
  GEMINID_RETURN_IF_ERROR(math.Zero(resources, row.data(), logits.stride * sizeof(T)));
  GEMINID_RETURN_IF_ERROR(math.Copy(resources, Matrix<const T>(bias, 1, logits.cols),
                                    Matrix<T>(row.data(), 1, logits.cols)));
  return math.AddBias(resources, row.data(),
                      Matrix<float>(logits.data, logits.rows, logits.stride));
}

// Counts the targets whose logits are the largest of their rows. Waits for them.
template <typename T>
absl::Status AddRight(const Resources& resources, Matrix<float> logits, const int32_t* targets,
                      uint64_t* right) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  std::vector<float> values(logits.rows * logits.stride);
  std::vector<int32_t> expected(logits.rows);
  GEMINID_RETURN_IF_ERROR(
      math.Download(resources, logits.data, values.size() * sizeof(float), values.data()));
  GEMINID_RETURN_IF_ERROR(
      math.Download(resources, targets, expected.size() * sizeof(int32_t), expected.data()));
  for (size_t row = 0; row < logits.rows; ++row) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(row * logits.stride);
    const auto end = first + static_cast<ptrdiff_t>(logits.cols);
    if (std::max_element(first, end) - first == expected[row]) ++*right;
  }
  return absl::OkStatus();
}

// The loss of some tokens; their rows of dlogits are written, if there are any: as far apart as
// those of the logits, and what lies between them, too.
template <typename T>
absl::Status LossOfRows(const Resources& resources, Matrix<const T> n,
                        const LinearView<const T>& output, const int32_t* targets,
                        float gradient_scale, Matrix<T> dlogits,
                        kernels::CrossEntropyResult* result, uint64_t* right) {
  const size_t stride = resources.math.LogitStride(output.out);
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<float>::Allocate(resources, n.rows * stride));
  const Matrix<float> logits(storage.data(), n.rows, output.out, stride);
  LinearView<const T> table = output;
  table.bias = nullptr;
  GEMINID_RETURN_IF_ERROR((Forward<T, float>(resources, n, table, logits)));
  if (output.bias != nullptr) {
    GEMINID_RETURN_IF_ERROR(AddOutputBias<T>(resources, output.bias, logits));
  }
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  const bool gradients = dlogits.data != nullptr;
  GEMINID_RETURN_IF_ERROR(math.CrossEntropy(resources, logits, targets, gradient_scale, gradients,
                                            result,
                                            /*token_loss=*/nullptr));
  if (!gradients) {
    return right == nullptr ? absl::OkStatus() : AddRight<T>(resources, logits, targets, right);
  }
  return math.Round(resources, logits.data, logits.rows * stride, dlogits.data);
}

// The losses of rows of tokens, which stay in the kernels' memory until Sum. A rank has whole rows
// of logits, or some of the words (share_loss.h).
class Losses {
 public:
  static absl::StatusOr<Losses> Of(const Resources& resources, const SublayerContext& context,
                                   const int32_t* targets) {
    Losses losses;
    const size_t tokens =
        context.targets.rows != nullptr ? context.targets.count : context.shape.tokens();
    losses.targets_ = targets;
    losses.right_ = context.targets.right;
    losses.rows_ = context.tiling.tokens;
    if (context.layers != nullptr) {
      losses.rows_ *= context.layers->ranks();  // as many elements as whole rows on one rank
      GEMINID_ASSIGN_OR_RETURN(losses.share_,
                               ShareLosses::Of(resources, *context.layers, targets, tokens));
      return losses;
    }
    losses.count_ = (tokens + losses.rows_ - 1) / losses.rows_;
    GEMINID_ASSIGN_OR_RETURN(
        losses.results_, Scratch<kernels::CrossEntropyResult>::Allocate(resources, losses.count_));
    return losses;
  }

  // The number of rows that one call of OfRows takes.
  size_t rows() const { return rows_; }

  // LossOfRows for the rows from `first` on. `n` is the output layer's input for these rows.
  template <typename T>
  absl::Status OfRows(const Resources& resources, size_t first, Matrix<const T> n,
                      const LinearView<const T>& output, float gradient_scale, Matrix<T> dlogits) {
    if (share_) {
      return share_->OfRows<T>(resources, first, n, output, gradient_scale, dlogits);
    }
    return LossOfRows<T>(resources, n, output, targets_ + first, gradient_scale, dlogits,
                         results_.data() + first / rows_, right_);
  }

  // Waits until all losses are computed, then adds them up.
  absl::StatusOr<double> Sum(const Resources& resources) const {
    if (share_) return share_->Sum(resources);
    std::vector<kernels::CrossEntropyResult> here(count_);
    GEMINID_RETURN_IF_ERROR(KernelsFor<float>(resources).Download(
        resources, results_.data(), count_ * sizeof(here[0]), here.data()));
    double sum = 0;
    for (const kernels::CrossEntropyResult& result : here) sum += result.loss_sum;
    return sum;
  }

 private:
  const int32_t* targets_ = nullptr;
  uint64_t* right_ = nullptr;
  size_t rows_ = 0;
  size_t count_ = 0;
  Scratch<kernels::CrossEntropyResult> results_;
  std::optional<ShareLosses> share_;
};

// The rows of the residual stream that have targets: the stream itself, or copies of some rows.
template <typename T>
struct RowsWithTargets {
  Scratch<T> storage;
  const T* x = nullptr;
  size_t count = 0;

  static absl::StatusOr<RowsWithTargets> Of(const Resources& resources,
                                            const SublayerContext& context, const T* x) {
    RowsWithTargets rows;
    rows.x = x;
    rows.count = context.shape.tokens();
    if (context.targets.rows == nullptr) return rows;
    rows.count = context.targets.count;
    const kernels::EmbeddingShape shape = ShapeOfRows(context);
    GEMINID_ASSIGN_OR_RETURN(rows.storage,
                             Scratch<T>::Allocate(resources, rows.count * shape.hidden));
    rows.x = rows.storage.data();
    GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).EmbeddingForward(
        resources, shape, context.targets.rows, x, /*positions=*/nullptr, /*sequence=*/0,
        rows.storage.data()));
    return rows;
  }

  // The stream's gradient from the gradient of the rows: zeros for the other rows.
  static absl::Status Spread(const Resources& resources, const SublayerContext& context,
                             const T* of_rows, T* gradient) {
    return KernelsFor<T>(resources).EmbeddingBackward(resources, ShapeOfRows(context),
                                                      context.targets.rows, of_rows, gradient,
                                                      /*accumulate=*/false);
  }

 private:
  // The stream serves as the table of an embedding.
  static kernels::EmbeddingShape ShapeOfRows(const SublayerContext& context) {
    return {.tokens = context.targets.count,
            .hidden = context.config->hidden,
            .vocabulary = context.shape.tokens(),
            .rows = context.shape.tokens()};
  }
};

// Of each image the last row, of the class token, and then those of its patches (ends.h).
std::vector<int32_t> RowsOfImages(const MicroBatchShape& shape) {
  const size_t patches = shape.sequence_length - 1;
  std::vector<int32_t> rows;
  rows.reserve(shape.tokens());
  for (size_t image = 0; image < shape.sequences; ++image) {
    rows.push_back(static_cast<int32_t>(shape.sequences * patches));
    for (size_t i = 0; i < patches; ++i) rows.push_back(static_cast<int32_t>(image * patches + i));
  }
  return rows;
}

// The gradient of what the output layer reads: of a rank that has some of the words, the sum over
// the ranks.
template <typename T>
absl::Status OutputBackward(const Resources& resources, const SublayerContext& context,
                            Matrix<const T> dlogits, const LinearView<const T>& output,
                            Matrix<T> dn) {
  if (context.layers == nullptr) return BackwardInput<T, T>(resources, dlogits, output, dn);
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<float>::Allocate(resources, dn.size()));
  const Matrix<float> sum(storage.data(), dn.rows, dn.cols);
  GEMINID_RETURN_IF_ERROR((BackwardInput<T, float>(resources, dlogits, output, sum)));
  GEMINID_RETURN_IF_ERROR(SumOverRanks(resources, context, sum));
  return KernelsFor<T>(resources).Round(resources, sum.data, sum.size(), dn.data);
}

}  // namespace

absl::StatusOr<Scratch<int32_t>> UploadTokens(const Resources& resources, LayerShare* layers,
                                              const MicroBatch& batch) {
  const KernelsOf<float>& math = KernelsFor<float>(resources);
  const size_t tokens = batch.shape.tokens();
  GEMINID_ASSIGN_OR_RETURN(auto here, Scratch<int32_t>::Allocate(resources, 2 * tokens));
  GEMINID_RETURN_IF_ERROR(
      math.Upload(resources, batch.tokens.data(), batch.tokens.size_bytes(), here.data()));
  std::vector<int32_t> of_share;
  if (layers != nullptr) of_share = layers->TargetsHere(batch.targets);
  const int32_t* const targets = layers != nullptr ? of_share.data() : batch.targets.data();
  GEMINID_RETURN_IF_ERROR(
      math.Upload(resources, targets, tokens * sizeof(int32_t), here.data() + tokens));
  return here;
}

absl::StatusOr<Scratch<int32_t>> UploadChosen(const Resources& resources, const MicroBatch& batch,
                                              TargetRows* rows) {
  const KernelsOf<float>& math = KernelsFor<float>(resources);
  const size_t tokens = batch.shape.tokens();
  const std::vector<int32_t> of_images =
      batch.tokens.empty() ? RowsOfImages(batch.shape) : std::vector<int32_t>();
  const std::span<const int32_t> inputs = batch.tokens.empty() ? of_images : batch.tokens;
  std::vector<int32_t> targets, places;
  for (size_t token = 0; token < tokens; ++token) {
    if (batch.targets[token] == kNoTarget) continue;
    targets.push_back(batch.targets[token]);
    places.push_back(static_cast<int32_t>(token));
  }
  if (targets.empty()) {
    targets.push_back(kNoTarget);
    places.push_back(0);
  }
  rows->count = targets.size();
  targets.insert(targets.end(), places.begin(), places.end());
  GEMINID_ASSIGN_OR_RETURN(auto here,
                           Scratch<int32_t>::Allocate(resources, tokens + targets.size()));
  rows->rows = here.data() + tokens + rows->count;
  GEMINID_RETURN_IF_ERROR(math.Upload(resources, inputs.data(), inputs.size_bytes(), here.data()));
  GEMINID_RETURN_IF_ERROR(math.Upload(resources, targets.data(), targets.size() * sizeof(int32_t),
                                      here.data() + tokens));
  return here;
}

namespace {

// OutputAndLoss of the rows that have targets, by way of a head where there is one.
template <typename T>
absl::StatusOr<double> ChosenRowsAndLoss(const Resources& resources, const SublayerContext& context,
                                         const ModelParameters& parameters, ParameterUse& use,
                                         const T* x, const int32_t* targets, float gradient_scale,
                                         T* gradient) {
  const size_t hidden = context.config->hidden;
  const LinearView<const T> output = WeightOf<T>(use, parameters.output);
  const size_t stride = resources.math.LogitStride(output.out);
  GEMINID_ASSIGN_OR_RETURN(auto losses, Losses::Of(resources, context, targets));
  GEMINID_ASSIGN_OR_RETURN(const auto read, RowsWithTargets<T>::Of(resources, context, x));
  const size_t count = read.count;
  GEMINID_ASSIGN_OR_RETURN(auto norm,
                           NormLayer<T>::Create(resources, context, parameters.final_norm, count));
  std::optional<PredictionHead<T>> head;
  if (parameters.head) {
    GEMINID_ASSIGN_OR_RETURN(
        head, PredictionHead<T>::Create(resources, context, *parameters.head, count));
  }
  GEMINID_ASSIGN_OR_RETURN(auto storage,
                           Scratch<T>::Allocate(resources, count * (stride + 3 * hidden)));
  const Matrix<T> dlogits(storage.data(), count, output.out, stride);
  const Matrix<T> n(storage.data() + count * stride, count, hidden);
  const Matrix<T> back(n.data + n.size(), count, hidden);
  const Matrix<T> out = head ? Matrix<T>(back.data + back.size(), count, hidden) : n;
  GEMINID_RETURN_IF_ERROR(norm.Forward(use, read.x, n.data));
  if (head) GEMINID_RETURN_IF_ERROR(head->Forward(resources, use, n, out));
  for (size_t first = 0; first < count; first += losses.rows()) {
    const size_t rows = std::min(losses.rows(), count - first);
    GEMINID_RETURN_IF_ERROR(losses.OfRows<T>(resources, first, out.Rows(first, rows), output,
                                             gradient_scale, dlogits.Rows(first, rows)));
  }
  GEMINID_RETURN_IF_ERROR(OutputBackward<T>(resources, context, dlogits, output, back));
  GEMINID_RETURN_IF_ERROR(
      BackwardWeight<T>(resources, dlogits, out, {parameters.output}, use, /*adds=*/true));
  if (head) GEMINID_RETURN_IF_ERROR(head->Backward(resources, use, n, back));
  GEMINID_RETURN_IF_ERROR(norm.Backward(use, back.data, read.x, nullptr, back.data));
  GEMINID_RETURN_IF_ERROR(RowsWithTargets<T>::Spread(resources, context, back.data, gradient));
  return losses.Sum(resources);
}

}  // namespace

template <typename T>
absl::StatusOr<double> OutputAndLoss(const Resources& resources, const SublayerContext& context,
                                     const ModelParameters& parameters, ParameterUse& use,
                                     const T* x, const int32_t* targets, float gradient_scale,
                                     T* gradient) {
  if (context.targets.rows != nullptr) {
    return ChosenRowsAndLoss<T>(resources, context, parameters, use, x, targets, gradient_scale,
                                gradient);
  }
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  const LinearView<const T> output = WeightOf<T>(use, parameters.output);
  const size_t stride = resources.math.LogitStride(output.out);
  GEMINID_ASSIGN_OR_RETURN(auto losses, Losses::Of(resources, context, targets));
  GEMINID_ASSIGN_OR_RETURN(auto norm,
                           NormLayer<T>::Create(resources, context, parameters.final_norm, tokens));
  Scratch<T> storage;  // empty if the weights' gradients read the values later
  T* data = nullptr;
  if (const size_t size = tokens * (hidden + stride); resources.later != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(data, resources.later->Allocate<T>(resources, size));
  } else {
    GEMINID_ASSIGN_OR_RETURN(storage, Scratch<T>::Allocate(resources, size));
    data = storage.data();
  }
  const Matrix<T> dlogits(data, tokens, output.out, stride);
  const Matrix<T> n(data + tokens * stride, tokens, hidden);
  GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, n.data));
  for (size_t first = 0; first < tokens; first += losses.rows()) {
    const size_t rows = std::min(losses.rows(), tokens - first);
    GEMINID_RETURN_IF_ERROR(losses.OfRows<T>(resources, first, n.Rows(first, rows), output,
                                             gradient_scale, dlogits.Rows(first, rows)));
  }
  GEMINID_RETURN_IF_ERROR(
      OutputBackward<T>(resources, context, dlogits, output, Matrix<T>(gradient, tokens, hidden)));
  GEMINID_RETURN_IF_ERROR(
      BackwardWeight<T>(resources, dlogits, n, {parameters.output}, use, /*adds=*/true));
  GEMINID_RETURN_IF_ERROR(norm.Backward(use, gradient, x, nullptr, gradient));
  return losses.Sum(resources);
}

template <typename T>
absl::StatusOr<double> OutputLoss(const Resources& resources, const SublayerContext& context,
                                  const ModelParameters& parameters, const ParameterUse& use,
                                  const T* x, const int32_t* targets) {
  const size_t hidden = context.config->hidden;
  GEMINID_ASSIGN_OR_RETURN(auto losses, Losses::Of(resources, context, targets));
  GEMINID_ASSIGN_OR_RETURN(const auto read, RowsWithTargets<T>::Of(resources, context, x));
  for (size_t first = 0; first < read.count; first += losses.rows()) {
    const size_t rows = std::min(losses.rows(), read.count - first);
    GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, rows * hidden));
    const Matrix<T> n(storage.data(), rows, hidden);
    GEMINID_ASSIGN_OR_RETURN(auto norm,
                             NormLayer<T>::Create(resources, context, parameters.final_norm, rows));
    GEMINID_RETURN_IF_ERROR(norm.Forward(use, read.x + first * hidden, n.data));
    if (parameters.head) {
      GEMINID_ASSIGN_OR_RETURN(
          auto head, PredictionHead<T>::Create(resources, context, *parameters.head, rows));
      GEMINID_RETURN_IF_ERROR(head.Forward(resources, use, n, n));
    }
    GEMINID_RETURN_IF_ERROR(losses.OfRows<T>(resources, first, n,
                                             WeightOf<T>(use, parameters.output),
                                             /*gradient_scale=*/0, Matrix<T>()));
  }
  return losses.Sum(resources);
}

template <typename T>
absl::Status LogitsOfToken(const Resources& resources, const SublayerContext& context,
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
  return KernelsFor<T>(resources).Download(resources, logits_storage.data(), logits.size_bytes(),
                                           logits.data());
}

#define GEMINID_INSTANTIATE(T)                                                                   \
  template absl::StatusOr<double> OutputAndLoss(const Resources&, const SublayerContext&,        \
                                                const ModelParameters&, ParameterUse&, const T*, \
                                                const int32_t*, float, T*);                      \
  template absl::StatusOr<double> OutputLoss(const Resources&, const SublayerContext&,           \
                                             const ModelParameters&, const ParameterUse&,        \
                                             const T*, const int32_t*);                          \
  template absl::Status LogitsOfToken(const Resources&, const SublayerContext&,                  \
                                      const ModelParameters&, const ParameterUse&, const T*,     \
                                      std::span<float>);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
