#include "training/nn/parallel/tensor/parallel_mlp.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "kernels/model/activation/gelu.h"
#include "kernels/model/activation/swiglu.h"
#include "kernels/runtime/common/absl_status.h"
#include "training/nn/parallel/tensor/block_size.h"

namespace geminid::collectives {

using kernels::FromKernel;

namespace {
constexpr char kInside[] = "the activations inside a cut MLP";
}  // namespace

absl::StatusOr<std::unique_ptr<ParallelMlp>> ParallelMlp::Make(TensorGroups& groups,
                                                               const MlpOptions& options,
                                                               LinearScratch& scratch) {
  const std::vector<size_t> sections(options.activation == Activation::kSwiglu ? 2 : 1,
                                     options.inner);
  GEMINID_ASSIGN_OR_RETURN(FusedOutputs outputs, FusedOutputs::Make(groups.grid(), sections));
  const LinearOptions first = {.role = LinearRole::kFirst,
                               .shape = {options.tokens, options.hidden, outputs.outputs()},
                               .bias = options.bias};
  const LinearOptions second = {.role = LinearRole::kSecond,
                                .shape = {options.tokens, options.inner, options.hidden},
                                .bias = options.bias};
  std::unique_ptr<ParallelMlp> mlp(new ParallelMlp(groups, options, std::move(outputs), scratch));
  GEMINID_ASSIGN_OR_RETURN(mlp->first_, ParallelLinear::Make(groups, first, scratch));
  GEMINID_ASSIGN_OR_RETURN(mlp->second_, ParallelLinear::Make(groups, second, scratch));
  return mlp;
}

absl::Status ParallelMlp::Activate(const float* kept, float* inner) const {
  if (options_.activation == Activation::kGelu) {
    return FromKernel(kernels::GeluForward(kept, second().x.elements(), inner), "GELU");
  }
  const Range gate = outputs_.PartOf(0), up = outputs_.PartOf(1);
  const kernels::SwigluShape shape = {second().x.rows.count, gate.count, first().y.columns.count};
  return FromKernel(kernels::SwigluForward(shape, kept + gate.begin, kept + up.begin, inner),
                    "SwiGLU");
}

absl::Status ParallelMlp::ActivateBackward(const float* kept, const float* dinner,
                                           float* dkept) const {
  if (options_.activation == Activation::kGelu) {
    return FromKernel(kernels::GeluBackward(dinner, kept, second().x.elements(), dkept), "GELU");
  }
  const Range gate = outputs_.PartOf(0), up = outputs_.PartOf(1);
  const kernels::SwigluShape shape = {second().x.rows.count, gate.count, first().y.columns.count};
  return FromKernel(kernels::SwigluBackward(shape, dinner, kept + gate.begin, kept + up.begin,
                                            dkept + gate.begin, dkept + up.begin),
                    "SwiGLU");
}

absl::Status ParallelMlp::Forward(std::span<const float> x, const Parameters& parameters,
                                  std::span<float> kept, std::span<float> y) {
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), second().y.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("W2", parameters.w2.size(), second().w.elements()));
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("b2", parameters.b2.size(), options_.bias ? second().bias.count : 0));
  GEMINID_RETURN_IF_ERROR(first_->Forward(x, parameters.w1, parameters.b1, kept));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock inner, Take(kInside, second().x.elements()));
  GEMINID_RETURN_IF_ERROR(Activate(kept.data(), inner.data()));
  return second_->Forward(inner.all(), parameters.w2, parameters.b2, y);
}

absl::Status ParallelMlp::Backward(std::span<const float> x, const Parameters& parameters,
                                   std::span<const float> kept, std::span<const float> dy,
                                   const Gradients& gradients) {
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("what is kept", kept.size(), this->kept()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("W1", parameters.w1.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dX", gradients.x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dW1", gradients.w1.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("db1", gradients.b1.size(), options_.bias ? first().bias.count : 0));
  const size_t inner = second().x.elements();
  // The second layer's input. Once it is no longer needed, the gradient of the first layer's output
  // overwrites it.
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock place, Take(kInside, std::max(inner, kept.size())));
  const std::span<float> dkept = place.all().first(kept.size());
  {
    const std::span<float> taken = place.all().first(inner);
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock dtaken,
                             Take("the gradients of those inside a cut MLP", inner));
    GEMINID_RETURN_IF_ERROR(Activate(kept.data(), taken.data()));
    GEMINID_RETURN_IF_ERROR(second_->Backward(
        taken, parameters.w2, dy, {.x = dtaken.all(), .w = gradients.w2, .bias = gradients.b2}));
    GEMINID_RETURN_IF_ERROR(ActivateBackward(kept.data(), dtaken.data(), dkept.data()));
  }
  return first_->Backward(x, parameters.w1, dkept,
                          {.x = gradients.x, .w = gradients.w1, .bias = gradients.b1});
}

}  // namespace geminid::collectives
