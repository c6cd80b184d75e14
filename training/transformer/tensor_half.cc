#include "training/transformer/tensor_half.h"

#include <algorithm>
#include <optional>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr size_t kTile = 32;  // on a side: both of its faces stay in the cache

// [rows, columns] to [columns, rows].
void Turn(const float* from, size_t rows, size_t columns, float* to) {
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

size_t Elements(const TensorParameters& parameters, std::optional<ParameterId> id) {
  return id ? SpecOf(parameters, *id).elements() : 0;
}

// Rows and columns as the block lies.
void TurnBlock(const ParameterSpec& spec, const float* from, float* to) {
  Turn(from, static_cast<size_t>(spec.shape[0]), static_cast<size_t>(spec.shape[1]), to);
}
void TurnToBlock(const ParameterSpec& spec, const float* from, float* to) {
  Turn(from, static_cast<size_t>(spec.shape[1]), static_cast<size_t>(spec.shape[0]), to);
}

}  // namespace

absl::StatusOr<Floats> Floats::Allocate(const Resources& resources, size_t count) {
  Floats floats;
  floats.count_ = count;
  if (count == 0) return floats;
  GEMINID_ASSIGN_OR_RETURN(floats.storage_, Scratch<float>::Allocate(resources, count));
  return floats;
}

std::span<const float> ValuesOf(const ParameterUse& use, const TensorParameters& parameters,
                                ParameterId id) {
  return {reinterpret_cast<const float*>(use.Weight(id)), Elements(parameters, id)};
}

std::span<const float> ValuesOf(const ParameterUse& use, const TensorParameters& parameters,
                                std::optional<ParameterId> id) {
  return id ? ValuesOf(use, parameters, *id) : std::span<const float>();
}

absl::Status Give(ParameterUse& use, ParameterId id, std::span<const float> gradient) {
  auto* const to = reinterpret_cast<float*>(use.Gradient(id));
  if (use.GradientAccumulates(id)) {
    for (size_t i = 0; i < gradient.size(); ++i) to[i] += gradient[i];
  } else {
    std::ranges::copy(gradient, to);
  }
  return use.GradientWritten(id);
}

absl::StatusOr<HalfValues> HalfValues::Of(const Resources& resources, const ParameterUse& use,
                                          const TensorParameters& parameters,
                                          const TensorHalf& half) {
  HalfValues values;
  values.w1 = ValuesOf(use, parameters, half.w1);
  values.b1 = ValuesOf(use, parameters, half.b1);
  values.w2 = ValuesOf(use, parameters, half.w2);
  values.b2 = ValuesOf(use, parameters, half.b2);
  if (half.layout == Layout::kOutIn) return values;
  GEMINID_ASSIGN_OR_RETURN(values.turned1_, Floats::Allocate(resources, values.w1.size()));
  GEMINID_ASSIGN_OR_RETURN(values.turned2_, Floats::Allocate(resources, values.w2.size()));
  TurnBlock(SpecOf(parameters, half.w1), values.w1.data(), values.turned1_.all().data());
  TurnBlock(SpecOf(parameters, half.w2), values.w2.data(), values.turned2_.all().data());
  values.w1 = values.turned1_.all();
  values.w2 = values.turned2_.all();
  return values;
}

absl::StatusOr<HalfGradients> HalfGradients::Allocate(const Resources& resources,
                                                      const TensorParameters& parameters,
                                                      const TensorHalf& half) {
  HalfGradients gradients;
  const size_t w1 = Elements(parameters, half.w1), b1 = Elements(parameters, half.b1);
  const size_t w2 = Elements(parameters, half.w2), b2 = Elements(parameters, half.b2);
  GEMINID_ASSIGN_OR_RETURN(gradients.storage_, Floats::Allocate(resources, w1 + b1 + w2 + b2));
  gradients.w1 = gradients.storage_.part(0, w1);
  gradients.b1 = gradients.storage_.part(w1, b1);
  gradients.w2 = gradients.storage_.part(w1 + b1, w2);
  gradients.b2 = gradients.storage_.part(w1 + b1 + w2, b2);
  return gradients;
}

absl::Status HalfGradients::Give(ParameterUse& use, const TensorParameters& parameters,
                                 const TensorHalf& half) const {
  for (const auto& [id, gradient] : {std::pair(half.w1, w1), std::pair(half.w2, w2)}) {
    if (half.layout == Layout::kOutIn) {
      GEMINID_RETURN_IF_ERROR(trainer::Give(use, id, gradient));
      continue;
    }
    // A matrix that lies the other way is used once, so nothing is added to.
    TurnToBlock(SpecOf(parameters, id), gradient.data(),
                reinterpret_cast<float*>(use.Gradient(id)));
    GEMINID_RETURN_IF_ERROR(use.GradientWritten(id));
  }
  if (half.b1) GEMINID_RETURN_IF_ERROR(trainer::Give(use, *half.b1, b1));
  return half.b2 ? trainer::Give(use, *half.b2, b2) : absl::OkStatus();
}

}  // namespace geminid::trainer
