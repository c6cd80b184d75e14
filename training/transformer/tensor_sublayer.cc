#include "training/transformer/tensor_sublayer.h"

#include <type_traits>
#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

using collectives::Converted;
using kernels::BFloat16;

const ParameterSpec& SpecOf(const TensorParameters& parameters, ParameterId id) {
  return parameters.blocks[static_cast<size_t>(id)].spec;
}
bool IsFloat(const ParameterSpec& spec) { return spec.data_type == zero::DataType::kFloat32; }

// The size of a matrix in its stored layout.
size_t Rows(const ParameterSpec& spec) { return static_cast<size_t>(spec.shape[0]); }
size_t Columns(const ParameterSpec& spec) { return static_cast<size_t>(spec.shape[1]); }

template <typename T>
absl::Status Put(collectives::LinearScratch& scratch, std::span<const float> gradient, bool adds,
                 T* to) {
  collectives::OperandMath<T>& math = scratch.math().template Of<T>();
  if (adds) return math.AddRounded(gradient, to);
  if constexpr (std::is_same_v<T, float>) {
    return scratch.math().Copy(gradient.data(), gradient.size_bytes(), to);
  } else {
    return math.Round(gradient, to);
  }
}

}  // namespace

template <typename T>
std::span<const T> MatrixOf(const ParameterUse& use, const TensorParameters& parameters,
                            ParameterId id) {
  return {reinterpret_cast<const T*>(use.Weight(id)), SpecOf(parameters, id).elements()};
}

template <typename T>
absl::StatusOr<Converted<float>> ValuesOf(collectives::LinearScratch& scratch,
                                          const ParameterUse& use,
                                          const TensorParameters& parameters,
                                          std::optional<ParameterId> id) {
  constexpr char kWhat[] = "parameters in fp32";
  if (!id) return Converted<float>();
  if (IsFloat(SpecOf(parameters, *id))) {
    return Converted<float>::Of(scratch, kWhat, MatrixOf<float>(use, parameters, *id));
  }
  return Converted<float>::Of(scratch, kWhat, MatrixOf<T>(use, parameters, *id));
}

template <typename T>
absl::Status Give(collectives::LinearScratch& scratch, ParameterUse& use,
                  const TensorParameters& parameters, ParameterId id,
                  std::span<const float> gradient) {
  const bool adds = use.GradientAccumulates(id);
  if (IsFloat(SpecOf(parameters, id))) {
    return Put(scratch, gradient, adds, reinterpret_cast<float*>(use.Gradient(id)));
  }
  return Put(scratch, gradient, adds, reinterpret_cast<T*>(use.Gradient(id)));
}

template <typename T>
absl::StatusOr<TensorSublayerValues<T>> TensorSublayerValues<T>::Of(
    collectives::LinearScratch& scratch, const ParameterUse& use,
    const TensorParameters& parameters, const TensorSublayer& sublayer) {
  TensorSublayerValues values;
  values.w1 = MatrixOf<T>(use, parameters, sublayer.w1);
  values.w2 = MatrixOf<T>(use, parameters, sublayer.w2);
  GEMINID_ASSIGN_OR_RETURN(values.b1, ValuesOf<T>(scratch, use, parameters, sublayer.b1));
  GEMINID_ASSIGN_OR_RETURN(values.b2, ValuesOf<T>(scratch, use, parameters, sublayer.b2));
  if (sublayer.layout == Layout::kOutIn) return values;
  const auto turn = [&](ParameterId id, std::span<const T>* matrix,
                        collectives::ElementBlock<T>* turned) {
    GEMINID_ASSIGN_OR_RETURN(*turned, scratch.Take<T>("a matrix that is turned", matrix->size()));
    const ParameterSpec& spec = SpecOf(parameters, id);
    GEMINID_RETURN_IF_ERROR(scratch.math().template Of<T>().Transpose(
        Rows(spec), Columns(spec), matrix->data(), turned->data()));
    *matrix = turned->all();
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(turn(sublayer.w1, &values.w1, &values.turned1));
  GEMINID_RETURN_IF_ERROR(turn(sublayer.w2, &values.w2, &values.turned2));
  return values;
}

absl::StatusOr<TensorSublayerGradients> TensorSublayerGradients::Allocate(
    collectives::LinearScratch& scratch, const TensorParameters& parameters,
    const TensorSublayer& sublayer) {
  TensorSublayerGradients gradients;
  const auto size = [&](std::optional<ParameterId> id) {
    return id ? SpecOf(parameters, *id).elements() : 0;
  };
  const size_t w1 = size(sublayer.w1), b1 = size(sublayer.b1), w2 = size(sublayer.w2),
               b2 = size(sublayer.b2);
  GEMINID_ASSIGN_OR_RETURN(gradients.storage,
                           scratch.Take("the gradients of two layers", w1 + b1 + w2 + b2));
  const std::span<float> all = gradients.storage.all();
  gradients.w1 = all.first(w1);
  gradients.b1 = all.subspan(w1, b1);
  gradients.w2 = all.subspan(w1 + b1, w2);
  gradients.b2 = all.subspan(w1 + b1 + w2);
  return gradients;
}

template <typename T>
absl::Status TensorSublayerGradients::Give(collectives::LinearScratch& scratch, ParameterUse& use,
                                           const TensorParameters& parameters,
                                           const TensorSublayer& sublayer) const {
  for (const auto& [id, gradient] : {std::pair(sublayer.w1, w1), std::pair(sublayer.w2, w2)}) {
    if (sublayer.layout == Layout::kOutIn) {
      GEMINID_RETURN_IF_ERROR(trainer::Give<T>(scratch, use, parameters, id, gradient));
      continue;
    }
    // A matrix in the other layout is used once, so its gradient is written, never added.
    const ParameterSpec& spec = SpecOf(parameters, id);
    GEMINID_RETURN_IF_ERROR(scratch.math().template Of<T>().TransposeRounded(
        Columns(spec), Rows(spec), gradient.data(), reinterpret_cast<T*>(use.Gradient(id))));
  }
  if (sublayer.b1)
    GEMINID_RETURN_IF_ERROR(trainer::Give<T>(scratch, use, parameters, *sublayer.b1, b1));
  return sublayer.b2 ? trainer::Give<T>(scratch, use, parameters, *sublayer.b2, b2)
                     : absl::OkStatus();
}

#define GEMINID_INSTANTIATE(T)                                                                    \
  template std::span<const T> MatrixOf<T>(const ParameterUse&, const TensorParameters&,           \
                                          ParameterId);                                           \
  template absl::StatusOr<Converted<float>> ValuesOf<T>(                                          \
      collectives::LinearScratch&, const ParameterUse&, const TensorParameters&,                  \
      std::optional<ParameterId>);                                                                \
  template absl::Status Give<T>(collectives::LinearScratch&, ParameterUse&,                       \
                                const TensorParameters&, ParameterId, std::span<const float>);    \
  template struct TensorSublayerValues<T>;                                                        \
  template absl::Status TensorSublayerGradients::Give<T>(                                         \
      collectives::LinearScratch&, ParameterUse&, const TensorParameters&, const TensorSublayer&) \
      const;
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
