// Implements the embedding of ends.h.
#include "kernels/model/embedding/embedding.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "training/nn/layer_share.h"
#include "training/transformer/ends.h"

namespace geminid::trainer {
namespace {

kernels::EmbeddingShape ShapeOf(const SublayerContext& context) {
  if (context.layers != nullptr) {
    const LayerShare::Rows& words = context.layers->words();
    return {.tokens = context.shape.tokens(),
            .hidden = context.config->hidden,
            .vocabulary = context.layers->ranks() * words.count,
            .first_row = words.first,
            .rows = words.count};
  }
  return {.tokens = context.shape.tokens(),
          .hidden = context.config->hidden,
          .vocabulary = context.config->vocabulary,
          .first_row = 0,
          .rows = context.config->vocabulary};
}

// The tokens of a sequence whose position rows are on this rank. Positions are rows of the rank's
// part of the table.
std::vector<Positions::Run> RunsHere(const SublayerContext& context) {
  std::vector<Positions::Run> runs = context.positions.RunsOf(context.shape.sequence_length);
  for (Positions::Run& run : runs) run.position += context.config->first_position_row();
  if (context.layers == nullptr) return runs;
  const LayerShare::Rows& rows = context.layers->positions();
  std::vector<Positions::Run> here;
  for (const Positions::Run& run : runs) {
    const size_t begin = std::max(run.position, rows.first);
    const size_t end = std::min(run.position + run.count, rows.first + rows.count);
    if (begin >= end) continue;
    here.push_back({.token = run.token + (begin - run.position),
                    .position = begin - rows.first,
                    .count = end - begin});
  }
  return here;
}

// The rows of learned positions of a sequence's tokens, in order. They point into the table if they
// are consecutive there. If there are token types, the row of the first type is added.
template <typename T>
struct PositionRows {
  Scratch<T> storage;
  const T* data = nullptr;  // null: the model learns no positions

  static absl::StatusOr<PositionRows> Of(const Resources& resources, const SublayerContext& context,
                                         const ModelParameters& parameters,
                                         const ParameterUse& use) {
    GEMINID_ASSIGN_OR_RETURN(PositionRows rows, Alone(resources, context, parameters, use));
    if (!parameters.type_table) return rows;
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    const size_t hidden = context.config->hidden;
    const size_t length = context.shape.sequence_length;
    const size_t types = context.config->token_type_rows();
    PositionRows typed;
    GEMINID_ASSIGN_OR_RETURN(typed.storage, Scratch<T>::Allocate(resources, length * hidden));
    typed.data = typed.storage.data();
    GEMINID_ASSIGN_OR_RETURN(auto first, Scratch<int32_t>::Allocate(resources, length));
    GEMINID_RETURN_IF_ERROR(math.Zero(resources, first.data(), length * sizeof(int32_t)));
    GEMINID_RETURN_IF_ERROR(math.EmbeddingForward(
        resources, {.tokens = length, .hidden = hidden, .vocabulary = types, .rows = types},
        first.data(), WeightOf<T>(use, *parameters.type_table), rows.data, length,
        typed.storage.data()));
    first.Free();
    return typed;
  }

 private:
  static absl::StatusOr<PositionRows> Alone(const Resources& resources,
                                            const SublayerContext& context,
                                            const ModelParameters& parameters,
                                            const ParameterUse& use) {
    PositionRows rows;
    if (!parameters.position_table) return rows;
    const T* const table = WeightOf<T>(use, *parameters.position_table);
    const size_t hidden = context.config->hidden;
    const size_t length = context.shape.sequence_length;
    const std::vector<Positions::Run> runs = RunsHere(context);
    if (runs.size() == 1 && runs[0].count == length) {
      rows.data = table + runs[0].position * hidden;
      return rows;
    }
    GEMINID_ASSIGN_OR_RETURN(rows.storage, Scratch<T>::Allocate(resources, length * hidden));
    rows.data = rows.storage.data();
    if (context.layers != nullptr) {  // other ranks have some of the rows
      GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Zero(resources, rows.storage.data(),
                                                            length * hidden * sizeof(T)));
    }
    for (const Positions::Run& run : runs) {
      GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Copy(
          resources, Matrix<const T>(table + run.position * hidden, run.count, hidden),
          Matrix<T>(rows.storage.data() + run.token * hidden, run.count, hidden)));
    }
    return rows;
  }
};

// Zeroes the rows of the position table's gradient that no token here has. Zero is all bits zero in
// both types.
template <typename T>
absl::Status ZeroRows(const Resources& resources, const SublayerContext& context, T* table,
                      size_t first, size_t end) {
  const size_t hidden = context.config->hidden;
  return KernelsFor<T>(resources).Zero(resources, table + first * hidden,
                                       (end - first) * hidden * sizeof(T));
}

// Sums the gradients of a run of tokens over the sequences.
template <typename T>
absl::Status PositionBackwardOfRun(const Resources& resources, const SublayerContext& context,
                                   const Positions::Run& run, const T* gradient, T* table,
                                   bool accumulates) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  const size_t hidden = context.config->hidden;
  const MicroBatchShape& all = context.shape;
  const MicroBatchShape shape = {.sequences = all.sequences, .sequence_length = run.count};
  Scratch<T> storage;
  if (run.count < all.sequence_length) {
    GEMINID_ASSIGN_OR_RETURN(storage, Scratch<T>::Allocate(resources, shape.tokens() * hidden));
    GEMINID_RETURN_IF_ERROR(
        math.Copy(resources,
                  Matrix<const T>(gradient, all.sequences, all.sequence_length * hidden)
                      .Cols(run.token * hidden, run.count * hidden),
                  Matrix<T>(storage.data(), all.sequences, run.count * hidden)));
    gradient = storage.data();
  }
  return math.PositionBackward(resources, shape, Matrix<const T>(gradient, shape.tokens(), hidden),
                               table + run.position * hidden, accumulates);
}

// All tokens are of the first type, so its row gets the whole gradient.
template <typename T>
absl::Status TypeBackward(const Resources& resources, const SublayerContext& context,
                          const ModelParameters& parameters, ParameterUse& use, const T* gradient) {
  T* const types = parameters.type_table ? GradientOf<T>(use, *parameters.type_table) : nullptr;
  if (types == nullptr) return absl::OkStatus();
  const MicroBatchShape each = {.sequences = context.shape.tokens(), .sequence_length = 1};
  const bool accumulates = use.GradientAccumulates(*parameters.type_table);
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).PositionBackward(
      resources, each, Matrix<const T>(gradient, each.tokens(), context.config->hidden), types,
      accumulates));
  if (accumulates) return absl::OkStatus();
  return ZeroRows(resources, context, types, 1, context.config->token_type_rows());
}

// The rows that images look up, of which each patch's is read once: those of the patches, and the
// class token.
template <typename T>
class ImageRows {
 public:
  static absl::StatusOr<ImageRows> Allocate(const Resources& resources,
                                            const SublayerContext& context) {
    ImageRows made;
    const ImageShape& image = *context.config->image;
    made.patches_ = context.shape.sequences * image.patches();
    made.elements_ = image.patch_elements();
    made.hidden_ = context.config->hidden;
    GEMINID_ASSIGN_OR_RETURN(made.storage_,
                             Scratch<T>::Allocate(resources, (made.patches_ + 1) * made.hidden_));
    return made;
  }

  T* data() const { return storage_.data(); }
  kernels::EmbeddingShape ShapeFor(size_t tokens) const {
    return {.tokens = tokens, .hidden = hidden_, .vocabulary = patches_ + 1, .rows = patches_ + 1};
  }

  absl::Status Compute(const Resources& resources, const ImagePlaces& places,
                       const ParameterUse& use, const T* patches) const {
    GEMINID_RETURN_IF_ERROR(trainer::Forward<T>(resources, Elements(patches),
                                                WeightOf<T>(use, places.patches), OfPatches()));
    return KernelsFor<T>(resources).Copy(
        resources, Matrix<const T>(WeightOf<T>(use, places.class_token), 1, hidden_), OfClass());
  }

  // From the gradients of the rows.
  absl::Status Backward(const Resources& resources, const ImagePlaces& places, ParameterUse& use,
                        const T* patches) const {
    if (T* const class_token = GradientOf<T>(use, places.class_token)) {
      GEMINID_RETURN_IF_ERROR(
          KernelsFor<T>(resources).Copy(resources, OfClass(), Matrix<T>(class_token, 1, hidden_)));
    }
    return BackwardWeight<T>(resources, OfPatches(), Elements(patches), LinearSlice{places.patches},
                             use);
  }

 private:
  Matrix<const T> Elements(const T* patches) const { return {patches, patches_, elements_}; }
  Matrix<T> OfPatches() const { return {storage_.data(), patches_, hidden_}; }
  Matrix<T> OfClass() const { return {storage_.data() + patches_ * hidden_, 1, hidden_}; }

  size_t patches_ = 0;  // of all images
  size_t elements_ = 0;
  size_t hidden_ = 0;
  Scratch<T> storage_;
};

}  // namespace

template <typename T>
absl::StatusOr<Scratch<T>> UploadPatches(const Resources& resources, const MicroBatch& batch) {
  GEMINID_ASSIGN_OR_RETURN(auto here, Scratch<T>::Allocate(resources, batch.patches.size()));
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).UploadRounded(
      resources, batch.patches.data(), batch.patches.size(), here.data()));
  return here;
}

template <typename T>
absl::Status EmbeddingForward(const Resources& resources, const SublayerContext& context,
                              const ModelParameters& parameters, const ParameterUse& use,
                              const EmbeddingInput<T>& input, T* x) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  GEMINID_ASSIGN_OR_RETURN(const auto positions,
                           PositionRows<T>::Of(resources, context, parameters, use));
  if (parameters.image) {
    GEMINID_ASSIGN_OR_RETURN(const auto rows, ImageRows<T>::Allocate(resources, context));
    GEMINID_RETURN_IF_ERROR(rows.Compute(resources, *parameters.image, use, input.patches));
    return math.EmbeddingForward(resources, rows.ShapeFor(context.shape.tokens()), input.tokens,
                                 rows.data(), positions.data, context.shape.sequence_length, x);
  }
  GEMINID_RETURN_IF_ERROR(math.EmbeddingForward(resources, ShapeOf(context), input.tokens,
                                                WeightOf<T>(use, parameters.token_table),
                                                positions.data, context.shape.sequence_length, x));
  if (context.layers == nullptr) return absl::OkStatus();
  return context.layers->Sum(resources, x, context.shape.tokens() * context.config->hidden);
}

template <typename T>
absl::Status EmbeddingBackward(const Resources& resources, const SublayerContext& context,
                               const ModelParameters& parameters, ParameterUse& use,
                               const EmbeddingInput<T>& input, const T* gradient) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  if (parameters.image) {
    GEMINID_ASSIGN_OR_RETURN(const auto rows, ImageRows<T>::Allocate(resources, context));
    GEMINID_RETURN_IF_ERROR(math.EmbeddingBackward(resources, rows.ShapeFor(context.shape.tokens()),
                                                   input.tokens, gradient, rows.data(),
                                                   /*accumulate=*/false));
    GEMINID_RETURN_IF_ERROR(rows.Backward(resources, *parameters.image, use, input.patches));
  } else if (T* const table = GradientOf<T>(use, parameters.token_table)) {
    GEMINID_RETURN_IF_ERROR(
        math.EmbeddingBackward(resources, ShapeOf(context), input.tokens, gradient, table,
                               use.GradientAccumulates(parameters.token_table)));
  }
  GEMINID_RETURN_IF_ERROR(TypeBackward(resources, context, parameters, use, gradient));
  T* const positions =
      parameters.position_table ? GradientOf<T>(use, *parameters.position_table) : nullptr;
  if (positions == nullptr) return absl::OkStatus();
  const bool accumulates = use.GradientAccumulates(*parameters.position_table);
  size_t done = 0;  // rows
  for (const Positions::Run& run : RunsHere(context)) {
    if (!accumulates) {
      GEMINID_RETURN_IF_ERROR(ZeroRows(resources, context, positions, done, run.position));
    }
    GEMINID_RETURN_IF_ERROR(
        PositionBackwardOfRun(resources, context, run, gradient, positions, accumulates));
    done = run.position + run.count;
  }
  if (accumulates) return absl::OkStatus();
  const ModelConfig& config = *context.config;
  const size_t rows = context.layers != nullptr
                          ? context.layers->positions().count
                          : config.first_position_row() + config.position_rows();
  return ZeroRows(resources, context, positions, done, rows);
}

#define GEMINID_INSTANTIATE(T)                                                            \
  template absl::StatusOr<Scratch<T>> UploadPatches(const Resources&, const MicroBatch&); \
  template absl::Status EmbeddingForward(const Resources&, const SublayerContext&,        \
                                         const ModelParameters&, const ParameterUse&,     \
                                         const EmbeddingInput<T>&, T*);                   \
  template absl::Status EmbeddingBackward(const Resources&, const SublayerContext&,       \
                                          const ModelParameters&, ParameterUse&,          \
                                          const EmbeddingInput<T>&, const T*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
