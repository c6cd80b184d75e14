#include "training/transformer/tensor_half.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr size_t kTile = 32;  // columns and rows: the tile's source and target stay in the cache

// Transposes [rows, columns] to [columns, rows].
void Transpose(const float* from, size_t rows, size_t columns, float* to) {
  for (size_t row = 0; row < rows; row += kTile) {
    for (size_t column = 0; column < columns; column += kTile) {
      for (size_t r = row; r < std::min(rows, row + kTile); ++r) {
        for (size_t c = column; c < std::min(columns, column + kTile); ++c) {
          to[c * rows + r] = from[r * columns + c];
        }
      }
    }
  }
}

const ParameterSpec& SpecOf(const TensorParameters& parameters, ParameterId id) {
  return parameters.blocks[static_cast<size_t>(id)].spec;
}

// The size of a matrix in its stored layout.
size_t Rows(const ParameterSpec& spec) { return static_cast<size_t>(spec.shape[0]); }
size_t Columns(const ParameterSpec& spec) { return static_cast<size_t>(spec.shape[1]); }

}  // namespace

std::span<const float> ValuesOf(const ParameterUse& use, const TensorParameters& parameters,
                                std::optional<ParameterId> id) {
  if (!id) return {};
  return {reinterpret_cast<const float*>(use.Weight(*id)), SpecOf(parameters, *id).elements()};
}

void Give(ParameterUse& use, ParameterId id, std::span<const float> gradient) {
  auto* const to = reinterpret_cast<float*>(use.Gradient(id));
  if (use.GradientAccumulates(id)) {
    for (size_t i = 0; i < gradient.size(); ++i) to[i] += gradient[i];
  } else {
    std::ranges::copy(gradient, to);
  }
}

absl::StatusOr<HalfValues> HalfValues::Of(collectives::LinearScratch& scratch,
                                          const ParameterUse& use,
                                          const TensorParameters& parameters,
                                          const TensorHalf& half) {
  HalfValues values;
  values.w1 = ValuesOf(use, parameters, half.w1);
  values.b1 = ValuesOf(use, parameters, half.b1);
  values.w2 = ValuesOf(use, parameters, half.w2);
  values.b2 = ValuesOf(use, parameters, half.b2);
  if (half.layout == Layout::kOutIn) return values;
  const auto turn = [&](ParameterId id, std::span<const float>* matrix,
                        collectives::FloatBlock* turned) {
    GEMINID_ASSIGN_OR_RETURN(*turned, scratch.Take("a matrix that is turned", matrix->size()));
    const ParameterSpec& spec = SpecOf(parameters, id);
    Transpose(matrix->data(), Rows(spec), Columns(spec), turned->data());
    *matrix = turned->all();
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(turn(half.w1, &values.w1, &values.turned1));
  GEMINID_RETURN_IF_ERROR(turn(half.w2, &values.w2, &values.turned2));
  return values;
}

absl::StatusOr<HalfGradients> HalfGradients::Allocate(collectives::LinearScratch& scratch,
                                                      const TensorParameters& parameters,
                                                      const TensorHalf& half) {
  HalfGradients gradients;
  const auto size = [&](std::optional<ParameterId> id) {
    return id ? SpecOf(parameters, *id).elements() : 0;
  };
  const size_t w1 = size(half.w1), b1 = size(half.b1), w2 = size(half.w2), b2 = size(half.b2);
  GEMINID_ASSIGN_OR_RETURN(gradients.storage,
                           scratch.Take("the gradients of two layers", w1 + b1 + w2 + b2));
  const std::span<float> all = gradients.storage.all();
  gradients.w1 = all.first(w1);
  gradients.b1 = all.subspan(w1, b1);
  gradients.w2 = all.subspan(w1 + b1, w2);
  gradients.b2 = all.subspan(w1 + b1 + w2);
  return gradients;
}

void HalfGradients::Give(ParameterUse& use, const TensorParameters& parameters,
                         const TensorHalf& half) const {
  for (const auto& [id, gradient] : {std::pair(half.w1, w1), std::pair(half.w2, w2)}) {
    if (half.layout == Layout::kOutIn) {
      trainer::Give(use, id, gradient);
      continue;
    }
    // A matrix in the other layout is used once, so its gradient is written, never added.
    const ParameterSpec& spec = SpecOf(parameters, id);
    Transpose(gradient.data(), Columns(spec), Rows(spec),
              reinterpret_cast<float*>(use.Gradient(id)));
  }
  if (half.b1) trainer::Give(use, *half.b1, b1);
  if (half.b2) trainer::Give(use, *half.b2, b2);
}

}  // namespace geminid::trainer
