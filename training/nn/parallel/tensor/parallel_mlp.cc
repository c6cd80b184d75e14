#include "training/nn/parallel/tensor/parallel_mlp.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "training/nn/parallel/tensor/block_size.h"

namespace geminid::collectives {

namespace {
constexpr char kInside[] = "the activations inside a sharded MLP";
}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<ParallelMlp<T>>> ParallelMlp<T>::Make(TensorGroups& groups,
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
  GEMINID_ASSIGN_OR_RETURN(mlp->first_, ParallelLinear<T>::Make(groups, first, scratch));
  GEMINID_ASSIGN_OR_RETURN(mlp->second_, ParallelLinear<T>::Make(groups, second, scratch));
  return mlp;
}

template <typename T>
absl::Status ParallelMlp<T>::Activate(const T* kept, T* inner) const {
  OperandMath<T>& math = scratch_.math().Of<T>();
  if (options_.activation == Activation::kGelu) {
    return math.GeluForward(kept, second().x.elements(), inner);
  }
  const Range gate = outputs_.PartOf(0), up = outputs_.PartOf(1);
  const kernels::SwigluShape shape = {second().x.rows.count, gate.count, first().y.columns.count};
  return math.SwigluForward(shape, kept + gate.begin, kept + up.begin, inner);
}

template <typename T>
absl::Status ParallelMlp<T>::ActivateBackward(const T* kept, const T* dinner, T* dkept) const {
  OperandMath<T>& math = scratch_.math().Of<T>();
  if (options_.activation == Activation::kGelu) {
    return math.GeluBackward(dinner, kept, second().x.elements(), dkept);
  }
  const Range gate = outputs_.PartOf(0), up = outputs_.PartOf(1);
  const kernels::SwigluShape shape = {second().x.rows.count, gate.count, first().y.columns.count};
  return math.SwigluBackward(shape, dinner, kept + gate.begin, kept + up.begin, dkept + gate.begin,
                             dkept + up.begin);
}

template <typename T>
absl::Status ParallelMlp<T>::Forward(std::span<const T> x, const Parameters& parameters,
                                     std::span<T> kept, std::span<float> y) {
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the saved activations", kept.size(), this->kept()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), second().y.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("W2", parameters.w2.size(), second().w.elements()));
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("b2", parameters.b2.size(), options_.bias ? second().bias.count : 0));
  {
    GEMINID_ASSIGN_OR_RETURN(const auto given, Rounding(kept));
    GEMINID_RETURN_IF_ERROR(first_->Forward(x, parameters.w1, parameters.b1, given.all()));
    GEMINID_RETURN_IF_ERROR(given.Round());
  }
  GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> inner, Take(kInside, second().x.elements()));
  GEMINID_RETURN_IF_ERROR(Activate(kept.data(), inner.data()));
  return second_->Forward(inner.all(), parameters.w2, parameters.b2, y);
}

template <typename T>
absl::Status ParallelMlp<T>::Backward(std::span<const T> x, const Parameters& parameters,
                                      std::span<const T> kept, std::span<const T> dy,
                                      const Gradients& gradients) {
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the saved activations", kept.size(), this->kept()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("W1", parameters.w1.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dX", gradients.x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dW1", gradients.w1.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("db1", gradients.b1.size(), options_.bias ? first().bias.count : 0));
  const size_t inner = second().x.elements();
  // What the second layer takes, and in its place, when that is not needed any more, the gradient
  // of what the first one gave.
  GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> place,
                           Take(kInside, std::max(inner, kept.size())));
  const std::span<T> dkept = place.all().first(kept.size());
  {
    const std::span<T> taken = place.all().first(inner);
    GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> dtaken,
                             Take("the gradients inside a sharded MLP", inner));
    GEMINID_RETURN_IF_ERROR(Activate(kept.data(), taken.data()));
    GEMINID_ASSIGN_OR_RETURN(const auto given, Rounding(dtaken.all()));
    GEMINID_RETURN_IF_ERROR(second_->Backward(
        taken, parameters.w2, dy, {.x = given.all(), .w = gradients.w2, .bias = gradients.b2}));
    GEMINID_RETURN_IF_ERROR(given.Round());
    GEMINID_RETURN_IF_ERROR(ActivateBackward(kept.data(), dtaken.data(), dkept.data()));
  }
  return first_->Backward(x, parameters.w1, dkept,
                          {.x = gradients.x, .w = gradients.w1, .bias = gradients.b1});
}

template class ParallelMlp<float>;
template class ParallelMlp<kernels::BFloat16>;

}  // namespace geminid::collectives
