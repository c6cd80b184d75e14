// LayerNorm or RMSNorm, depending on the model's family.
#ifndef GEMINID_TRAINING_TRANSFORMER_NORM_LAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_NORM_LAYER_H_

#include <cstddef>

#include "base/status_macros.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/sublayer.h"

namespace geminid::trainer {

// The values of a forward pass that the backward pass needs: the statistics of each row, and a copy
// of the gain, because its gradient overwrites the gain. O(rows + cols). Gain and shift are of type
// T, or fp32 with ModelConfig::fp32_norms.
template <typename T>
class NormLayer {
 public:
  // Allocates scratch for `rows` rows of the hidden size, or of `cols`. This object frees it.
  static absl::StatusOr<NormLayer> Create(const Resources& resources,
                                          const SublayerContext& context, const NormPlace& place,
                                          size_t rows) {
    return Create(resources, context, place, rows, context.config->hidden);
  }
  static absl::StatusOr<NormLayer> Create(const Resources& resources,
                                          const SublayerContext& context, const NormPlace& place,
                                          size_t rows, size_t cols);

  // y = norm(x), dense. `y` may be `x` if no backward pass follows. Reads the weights of `use`.
  absl::Status Forward(const ParameterUse& use, const T* x, T* y);

  // dx = residual + the gradient of x; `residual` is nullable. Writes the gradients of gain and
  // shift, now or later (Resources::later). `dx` may be `dy` or `residual`. Call this after
  // Forward.
  absl::Status Backward(ParameterUse& use, const T* dy, const T* x, const T* residual, T* dx);
  // For a norm whose rows the ranks of `share` divide among them: sums the gradients of gain and
  // shift over these ranks. Call this after Backward, with Resources::later null.
  absl::Status SumGradients(ParameterUse& use, LayerShare& share);

 private:
  template <typename P>
  absl::Status ForwardWith(const ParameterUse& use, const T* x, T* y);
  template <typename P>
  absl::Status BackwardWith(ParameterUse& use, const T* dy, const T* x, const T* residual, T* dx);
  template <typename P>
  absl::Status GradientsForLater(P** gain, P** shift);

  const Resources* resources_ = nullptr;
  NormPlace place_;
  NormShape shape_;
  Scratch<float> statistics_;
  bool wide_ = false;  // gain and shift are fp32
  Scratch<std::byte> gain_;
};

// If the norm ends the embedding (SublayerContext::drops_norm): applies the embedding's dropout to
// the norm's output or to its gradient, in place.
template <typename T>
absl::Status DropEmbedded(const Resources& resources, const SublayerContext& context, T* y) {
  if (!context.drops_norm) return absl::OkStatus();
  DropoutPlace embedding = context.dropout;
  embedding.place = 0;
  return KernelsFor<T>(resources).Drop(
      resources, embedding, Matrix<const T>(y, context.shape.tokens(), context.config->hidden), y);
}

// y = norm(x), dense, in a forward pass that stores no statistics.
template <typename T>
absl::Status Normalise(const Resources& resources, const SublayerContext& context,
                       const NormPlace& place, const ParameterUse& use, const T* x, T* y) {
  GEMINID_ASSIGN_OR_RETURN(auto norm,
                           NormLayer<T>::Create(resources, context, place, context.shape.tokens()));
  GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, y));
  return DropEmbedded(resources, context, y);
}

// The values to which a sublayer adds its output: flow.residual, or with norms after sublayers a
// copy of `n` in flow.out. `n` is the norm's output.
template <typename T>
absl::StatusOr<const T*> ResidualOf(const Resources& resources, const SublayerContext& context,
                                    const SublayerForward<T>& flow, Matrix<const T> n) {
  if (!context.config->norms_after()) return flow.residual;
  GEMINID_RETURN_IF_ERROR(
      KernelsFor<T>(resources).Copy(resources, n, Matrix<T>(flow.out, n.rows, n.cols)));
  return flow.out;
}

// The norm of a sublayer (sublayer.h) in the backward pass, with memory for n = norm(x) and for the
// fp32 gradient of n. This object frees the memory.
template <typename T>
struct NormBackward {
  static absl::StatusOr<NormBackward> Create(const Resources& resources,
                                             const SublayerContext& context,
                                             const NormPlace& place) {
    const size_t tokens = context.shape.tokens();
    const size_t hidden = context.config->hidden;
    NormBackward made;
    made.context = &context;
    GEMINID_ASSIGN_OR_RETURN(made.norm, NormLayer<T>::Create(resources, context, place, tokens));
    GEMINID_ASSIGN_OR_RETURN(made.n_storage, Scratch<T>::Allocate(resources, tokens * hidden));
    GEMINID_ASSIGN_OR_RETURN(made.dn_storage, Scratch<float>::Allocate(resources, tokens * hidden));
    made.n = Matrix<T>(made.n_storage.data(), tokens, hidden);
    made.dn = Matrix<float>(made.dn_storage.data(), tokens, hidden);
    return made;
  }

  // n = norm(x).
  absl::Status Forward(const Resources& resources, const ParameterUse& use, const T* x) {
    GEMINID_RETURN_IF_ERROR(norm.Forward(use, x, n.data));
    return DropEmbedded(resources, *context, n.data);
  }

  // With norms after sublayers, n also reaches the output directly: copies dy to dn. Returns true
  // if the other gradients must be added to dn.
  absl::StatusOr<bool> Begin(const Resources& resources, const T* dy) const {
    if (!context->config->norms_after()) return false;
    GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Widen(resources, dy, dn.size(), dn.data));
    return true;
  }

  // dx = residual + the gradient of x through dn. Overwrites n with the rounded dn.
  absl::Status Finish(const Resources& resources, ParameterUse& use,
                      const SublayerBackward<T>& flow) {
    GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Round(resources, dn.data, dn.size(), n.data));
    GEMINID_RETURN_IF_ERROR(DropEmbedded(resources, *context, n.data));
    const T* const residual = context->config->norms_after() ? nullptr : flow.residual;
    return norm.Backward(use, n.data, flow.x, residual, flow.dx);
  }

  const SublayerContext* context = nullptr;
  NormLayer<T> norm;
  Scratch<T> n_storage;
  Scratch<float> dn_storage;
  Matrix<T> n;
  Matrix<float> dn;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_NORM_LAYER_H_
