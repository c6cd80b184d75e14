// Linear layers with optional bias and adapter, on views of matrices. The kernels are those of the
// device that computes the model (model_kernels.h). T is float or kernels::BFloat16, the type of
// weights and activations.
#ifndef GEMINID_TRAINING_NN_COMPUTE_H_
#define GEMINID_TRAINING_NN_COMPUTE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/models/parameters.h"
#include "training/nn/dropout.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parameter_source.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

// The adapter of a linear layer, or of some of its inputs or outputs. In the view of a gradient,
// the gradients are added to `da` and `db`.
template <typename T>
struct AdapterView {
  const T* a = nullptr;  // [rank, in], rows a_stride apart; null: no adapter
  const T* b = nullptr;  // [out, rank], dense
  T* da = nullptr;
  T* db = nullptr;
  size_t rank = 0;
  size_t a_stride = 0;
  float scale = 0;
};

// The matrix of a linear layer in -> out, or some of its inputs or outputs. In the view of a
// gradient, null means that the parameter is frozen.
template <typename T>
struct LinearView {
  T* weight = nullptr;
  T* bias = nullptr;  // nullable
  Layout layout = Layout::kOutIn;
  size_t in = 0;
  size_t out = 0;
  size_t stride = 0;
  AdapterView<std::remove_const_t<T>> adapter = {};

  LinearView Outputs(size_t first, size_t count) const {
    LinearView part = *this;
    if (weight != nullptr) part.weight += first * (layout == Layout::kOutIn ? stride : 1);
    if (bias != nullptr) part.bias += first;
    if (adapter.b != nullptr) part.adapter.b += first * adapter.rank;
    if (adapter.db != nullptr) part.adapter.db += first * adapter.rank;
    part.out = count;
    return part;
  }
  // Some of the inputs. This view has no bias, because the bias is added only once.
  LinearView Inputs(size_t first, size_t count) const {
    LinearView part = *this;
    if (weight != nullptr) part.weight += first * (layout == Layout::kOutIn ? 1 : stride);
    if (adapter.a != nullptr) part.adapter.a += first;
    if (adapter.da != nullptr) part.adapter.da += first;
    part.bias = nullptr;
    part.in = count;
    return part;
  }
};

// The gradient of a sublayer's output before its dropout; `gradient` itself without dropout.
template <typename T>
struct DropoutGradient {
  Scratch<T> storage;
  const T* data = nullptr;

  static absl::StatusOr<DropoutGradient> Of(const Resources& resources, const DropoutPlace& place,
                                            size_t tokens, const T* gradient) {
    DropoutGradient dropped;
    dropped.data = gradient;
    if (!place.dropout.active()) return dropped;
    GEMINID_ASSIGN_OR_RETURN(dropped.storage,
                             Scratch<T>::Allocate(resources, tokens * place.hidden));
    GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Drop(
        resources, place, Matrix<const T>(gradient, tokens, place.hidden), dropped.storage.data()));
    dropped.data = dropped.storage.data();
    return dropped;
  }
};

// The weights and gradients of the operator that `use` holds.
template <typename T>
const T* WeightOf(const ParameterUse& use, ParameterId id) {
  return reinterpret_cast<const T*>(use.Weight(id));
}
template <typename T>
T* GradientOf(ParameterUse& use, ParameterId id) {
  return reinterpret_cast<T*>(use.Gradient(id));
}
template <typename T>
LinearView<const T> WeightOf(const ParameterUse& use, const LinearPlace& place);
template <typename T>
LinearView<T> GradientOf(ParameterUse& use, const LinearPlace& place);
// Reports the gradients of the trainable parameters among `ids` as written.
absl::Status GradientsWritten(ParameterUse& use, std::span<const ParameterId> ids);

// A linear layer, or some of its inputs without the bias, or some of its outputs.
struct LinearSlice {
  enum class Of : uint8_t { kAll, kInputs, kOutputs };
  const LinearPlace& place;
  Of of = Of::kAll;
  size_t first = 0;
  size_t count = 0;
};

// Writes zeros to the gradients of an adapter, to which each LinearSlice then adds. Runs now or
// later (Resources::later).
template <typename T>
absl::Status ClearAdapterGradients(const Resources& resources, ParameterUse& use,
                                   const LinearPlace& place);

// y = x W + b, or y += x W + b. Out is T or float.
template <typename T, typename Out>
absl::Status Forward(const Resources& resources, Matrix<const T> x, const LinearView<const T>& w,
                     Matrix<Out> y, bool accumulate = false);

// dx = dy W^T, or dx += dy W^T.
template <typename T, typename Out>
absl::Status BackwardInput(const Resources& resources, Matrix<const T> dy,
                           const LinearView<const T>& w, Matrix<Out> dx, bool accumulate = false);

// db = the sum of the rows of dy. The padding between the rows must hold numbers. A null db:
// nothing.
template <typename T>
absl::Status BackwardBias(const Resources& resources, Matrix<const T> dy, T* db);
// BackwardBias for a layer's whole bias, if it has one; now or later (Resources::later).
template <typename T>
absl::Status BackwardBias(const Resources& resources, Matrix<const T> dy, const LinearPlace& place,
                          ParameterUse& use);

// dW = x^T dy, and the gradients of the bias and the adapter if they exist. Frozen parameters get
// no gradient.
template <typename T>
absl::Status BackwardWeight(const Resources& resources, Matrix<const T> dy, Matrix<const T> x,
                            const LinearView<T>& dw, bool accumulate = false);
// BackwardWeight, now or later. With `adds`, the gradient accumulates if the source says so.
template <typename T>
absl::Status BackwardWeight(const Resources& resources, Matrix<const T> dy, Matrix<const T> x,
                            const LinearSlice& piece, ParameterUse& use, bool adds = false);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_COMPUTE_H_
