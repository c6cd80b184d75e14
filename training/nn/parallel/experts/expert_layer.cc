#include "training/nn/parallel/experts/expert_layer.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/model/activation/swiglu.h"
#include "kernels/runtime/common/absl_status.h"
#include "training/nn/parallel/tensor/block_size.h"

namespace geminid::collectives {
namespace {

using kernels::FromKernel;

double Dot(const float* a, const float* b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Token by token, so that a token's bits do not depend on the others that its rank has.
std::vector<float> LogitsOf(std::span<const float> x, std::span<const float> router,
                            size_t hidden) {
  const size_t tokens = x.size() / hidden, experts = router.size() / hidden;
  std::vector<float> logits(tokens * experts);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] =
        static_cast<float>(Dot(&x[i / experts * hidden], &router[i % experts * hidden], hidden));
  }
  return logits;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertLayer>> ExpertLayer::Make(const ExpertLayerOptions& options,
                                                               Communicator& ranks,
                                                               kernels::ThreadPool* pool,
                                                               Memory& memory) {
  GEMINID_RETURN_IF_ERROR(Validate(options.routing));
  if (options.hidden < 1 || options.inner < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "experts of %d x %d elements; both must be positive", options.inner, options.hidden));
  }
  GEMINID_RETURN_IF_ERROR(
      CheckSpread(options.routing.experts, static_cast<size_t>(ranks.WorldSize())));
  return std::unique_ptr<ExpertLayer>(new ExpertLayer(options, ranks, pool, memory));
}

ExpertLayer::ExpertLayer(const ExpertLayerOptions& options, Communicator& ranks,
                         kernels::ThreadPool* pool, Memory& memory)
    : options_(options),
      ranks_(ranks),
      own_experts_(options.routing.experts / static_cast<size_t>(ranks.WorldSize())),
      memory_(memory),
      products_(pool, memory) {}

absl::StatusOr<FloatBlock> ExpertLayer::Take(size_t rows, size_t width) {
  absl::StatusOr<FloatBlock> taken =
      FloatBlock::Allocate(memory_, "rows of an expert layer", rows * width);
  (void)TellIfRefused(ranks_, taken.status());
  return taken;
}

absl::Status ExpertLayer::TakePassed(PassedExperts& passed) {
  const size_t there = passed.exchange.rows_at_experts();
  GEMINID_ASSIGN_OR_RETURN(passed.outputs, Take(passed.exchange.rows_at_tokens(), options_.hidden));
  GEMINID_ASSIGN_OR_RETURN(passed.inputs, Take(there, options_.hidden));
  GEMINID_ASSIGN_OR_RETURN(passed.gate, Take(there, options_.inner));
  GEMINID_ASSIGN_OR_RETURN(passed.up, Take(there, options_.inner));
  return absl::OkStatus();
}

absl::Status ExpertLayer::CheckParameters(size_t x, const Parameters& parameters) const {
  const size_t matrix = options_.inner * options_.hidden;
  if (x % options_.hidden != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("X has %d elements, which are not whole tokens of %d", x, options_.hidden));
  }
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the router", parameters.router.size(),
                                         options_.routing.experts * options_.hidden));
  if (parameters.experts.size() != own_experts_) {
    return absl::InvalidArgumentError(absl::StrFormat("%d experts are given; this rank has %d",
                                                      parameters.experts.size(), own_experts_));
  }
  for (const Expert& expert : parameters.experts) {
    GEMINID_RETURN_IF_ERROR(CheckBlockSize("W1", expert.w1.size(), matrix));
    GEMINID_RETURN_IF_ERROR(CheckBlockSize("W3", expert.w3.size(), matrix));
    GEMINID_RETURN_IF_ERROR(CheckBlockSize("W2", expert.w2.size(), matrix));
  }
  return absl::OkStatus();
}

absl::Status ExpertLayer::CheckGradients(size_t x, const Gradients& gradients) const {
  const size_t matrix = options_.inner * options_.hidden;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dX", gradients.x.size(), x));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the router's gradient", gradients.router.size(),
                                         options_.routing.experts * options_.hidden));
  if (gradients.experts.size() != own_experts_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("gradients of %d experts are asked for; this rank has %d",
                        gradients.experts.size(), own_experts_));
  }
  for (const ExpertGradients& expert : gradients.experts) {
    GEMINID_RETURN_IF_ERROR(CheckBlockSize("dW1", expert.w1.size(), matrix));
    GEMINID_RETURN_IF_ERROR(CheckBlockSize("dW3", expert.w3.size(), matrix));
    GEMINID_RETURN_IF_ERROR(CheckBlockSize("dW2", expert.w2.size(), matrix));
  }
  return absl::OkStatus();
}

absl::StatusOr<PassedExperts> ExpertLayer::Forward(std::span<const float> x,
                                                   const Parameters& parameters,
                                                   std::span<float> y) {
  GEMINID_RETURN_IF_ERROR(CheckParameters(x.size(), parameters));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), x.size()));
  const size_t hidden = options_.hidden;
  GEMINID_ASSIGN_OR_RETURN(Routing routing,
                           Route(options_.routing, LogitsOf(x, parameters.router, hidden)));
  GEMINID_ASSIGN_OR_RETURN(RowExchange exchange, RowExchange::Make(routing, ranks_));
  PassedExperts passed = {.routing = std::move(routing), .exchange = std::move(exchange)};
  const std::vector<RoutedRow>& rows = passed.routing.rows;

  GEMINID_RETURN_IF_ERROR(TakePassed(passed));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock results,
                           Take(passed.exchange.rows_at_experts(), hidden));
  const std::span<float> outputs = passed.outputs.all();  // first what goes into the experts
  for (size_t r = 0; r < rows.size(); ++r) {
    std::copy_n(&x[rows[r].token * hidden], hidden, &outputs[r * hidden]);
  }
  GEMINID_RETURN_IF_ERROR(passed.exchange.ToExperts(hidden, outputs, passed.inputs.all(), memory_));
  for (size_t e = 0; e < own_experts_; ++e) {
    const size_t first = passed.exchange.FirstOf(e), count = passed.exchange.FirstOf(e + 1) - first;
    if (count == 0) continue;
    GEMINID_RETURN_IF_ERROR(
        TellIfRefused(ranks_, RunExpert(parameters.experts[e], first, count, passed,
                                        results.all().subspan(first * hidden, count * hidden))));
  }
  GEMINID_RETURN_IF_ERROR(passed.exchange.ToTokens(hidden, results.all(), outputs, memory_));
  std::ranges::fill(y, 0.0F);
  for (size_t r = 0; r < rows.size(); ++r) {
    const float weight = passed.routing.WeightOf(rows[r]);
    for (size_t h = 0; h < hidden; ++h) {
      y[rows[r].token * hidden + h] += weight * outputs[r * hidden + h];
    }
  }
  return passed;
}

absl::Status ExpertLayer::RunExpert(const Expert& expert, size_t first, size_t rows,
                                    PassedExperts& passed, std::span<float> out) {
  const size_t hidden = options_.hidden, inner = options_.inner;
  const float* const x = passed.inputs.data() + first * hidden;
  float* const gate = passed.gate.data() + first * inner;
  float* const up = passed.up.data() + first * inner;
  const LinearShape wide = {rows, hidden, inner}, narrow = {rows, inner, hidden};
  GEMINID_RETURN_IF_ERROR(products_.Forward(wide, x, expert.w1.data(), gate, Into::kOverwrite));
  GEMINID_RETURN_IF_ERROR(products_.Forward(wide, x, expert.w3.data(), up, Into::kOverwrite));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock within, Take(rows, inner));
  GEMINID_RETURN_IF_ERROR(FromKernel(
      kernels::SwigluForward<float>({rows, inner, inner}, gate, up, within.data()), "SwiGLU"));
  return products_.Forward(narrow, within.data(), expert.w2.data(), out.data(), Into::kOverwrite);
}

absl::Status ExpertLayer::RunExpertBackward(const Expert& expert, size_t first, size_t rows,
                                            const PassedExperts& passed,
                                            std::span<float> rows_gradient,
                                            const ExpertGradients& gradients) {
  const size_t hidden = options_.hidden, inner = options_.inner;
  const float* const x = passed.inputs.data() + first * hidden;
  const float* const gate = passed.gate.data() + first * inner;
  const float* const up = passed.up.data() + first * inner;
  float* const dy = rows_gradient.data();
  const LinearShape wide = {rows, hidden, inner}, narrow = {rows, inner, hidden};
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock within, Take(rows, inner));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock dwithin, Take(rows, inner));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock dgate, Take(rows, inner));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock dup, Take(rows, inner));
  GEMINID_RETURN_IF_ERROR(FromKernel(
      kernels::SwigluForward<float>({rows, inner, inner}, gate, up, within.data()), "SwiGLU"));
  GEMINID_RETURN_IF_ERROR(
      products_.BackwardInput(narrow, dy, expert.w2.data(), dwithin.data(), Into::kOverwrite));
  GEMINID_RETURN_IF_ERROR(
      products_.BackwardWeight(narrow, dy, within.data(), gradients.w2.data(), Into::kOverwrite));
  GEMINID_RETURN_IF_ERROR(
      FromKernel(kernels::SwigluBackward<float>({rows, inner, inner}, dwithin.data(), gate, up,
                                                dgate.data(), dup.data()),
                 "SwiGLU"));
  GEMINID_RETURN_IF_ERROR(
      products_.BackwardWeight(wide, dgate.data(), x, gradients.w1.data(), Into::kOverwrite));
  GEMINID_RETURN_IF_ERROR(
      products_.BackwardWeight(wide, dup.data(), x, gradients.w3.data(), Into::kOverwrite));
  GEMINID_RETURN_IF_ERROR(
      products_.BackwardInput(wide, dgate.data(), expert.w1.data(), dy, Into::kOverwrite));
  return products_.BackwardInput(wide, dup.data(), expert.w3.data(), dy, Into::kAdd);
}

absl::Status ExpertLayer::Backward(std::span<const float> x, const Parameters& parameters,
                                   PassedExperts& passed, std::span<const float> dy,
                                   const BalanceTerm& balance, const Gradients& gradients) {
  GEMINID_RETURN_IF_ERROR(CheckParameters(x.size(), parameters));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dY", dy.size(), x.size()));
  GEMINID_RETURN_IF_ERROR(CheckGradients(x.size(), gradients));
  const Routing& routing = passed.routing;
  const size_t hidden = options_.hidden, choices = routing.options.choices;
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("X of the forward pass", routing.tokens * hidden, x.size()));

  GEMINID_ASSIGN_OR_RETURN(const FloatBlock rows_at_tokens, Take(routing.rows.size(), hidden));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock rows_at_experts,
                           Take(passed.exchange.rows_at_experts(), hidden));
  const std::span<float> at_tokens = rows_at_tokens.all(), at_experts = rows_at_experts.all();
  std::vector<float> dweights(routing.tokens * choices);
  for (size_t r = 0; r < routing.rows.size(); ++r) {
    const RoutedRow& row = routing.rows[r];
    const float* const gradient = &dy[row.token * hidden];
    dweights[row.token * choices + row.choice] =
        static_cast<float>(Dot(gradient, passed.outputs.data() + r * hidden, hidden));
    const float weight = routing.WeightOf(row);
    for (size_t h = 0; h < hidden; ++h) at_tokens[r * hidden + h] = weight * gradient[h];
  }
  std::vector<float> dlogits(routing.probabilities.size());
  GEMINID_RETURN_IF_ERROR(RouteBackward(routing, dweights, balance, dlogits));

  GEMINID_RETURN_IF_ERROR(passed.exchange.ToExperts(hidden, at_tokens, at_experts, memory_));
  for (size_t e = 0; e < own_experts_; ++e) {
    const ExpertGradients& expert = gradients.experts[e];
    const size_t first = passed.exchange.FirstOf(e), count = passed.exchange.FirstOf(e + 1) - first;
    if (count == 0) {
      for (const std::span<float> matrix : {expert.w1, expert.w3, expert.w2}) {
        std::ranges::fill(matrix, 0.0F);
      }
      continue;
    }
    GEMINID_RETURN_IF_ERROR(TellIfRefused(
        ranks_, RunExpertBackward(parameters.experts[e], first, count, passed,
                                  at_experts.subspan(first * hidden, count * hidden), expert)));
  }
  GEMINID_RETURN_IF_ERROR(passed.exchange.ToTokens(hidden, at_experts, at_tokens, memory_));
  GEMINID_RETURN_IF_ERROR(RouterBackward(x, parameters.router, dlogits, gradients));
  for (size_t r = 0; r < routing.rows.size(); ++r) {
    float* const dx = &gradients.x[routing.rows[r].token * hidden];
    for (size_t h = 0; h < hidden; ++h) dx[h] += at_tokens[r * hidden + h];
  }
  return absl::OkStatus();
}

// Begins dx.
absl::Status ExpertLayer::RouterBackward(std::span<const float> x, std::span<const float> router,
                                         std::span<const float> dlogits,
                                         const Gradients& gradients) {
  const size_t hidden = options_.hidden, experts = options_.routing.experts;
  const size_t tokens = x.size() / hidden;
  std::vector<double> row(hidden);
  // row = sum_i factor(i) of(i)
  const auto add_up = [&row, hidden](size_t count, auto factor, auto of, float* out) {
    std::ranges::fill(row, 0.0);
    for (size_t i = 0; i < count; ++i) {
      const auto times = static_cast<double>(factor(i));
      const float* const values = of(i);
      for (size_t h = 0; h < hidden; ++h) row[h] += times * static_cast<double>(values[h]);
    }
    for (size_t h = 0; h < hidden; ++h) out[h] = static_cast<float>(row[h]);
  };
  for (size_t t = 0; t < tokens; ++t) {
    add_up(
        experts, [&](size_t e) { return dlogits[t * experts + e]; },
        [&](size_t e) { return &router[e * hidden]; }, &gradients.x[t * hidden]);
  }
  for (size_t e = 0; e < experts; ++e) {
    add_up(
        tokens, [&](size_t t) { return dlogits[t * experts + e]; },
        [&](size_t t) { return &x[t * hidden]; }, &gradients.router[e * hidden]);
  }
  return ranks_.AllReduce(gradients.router, gradients.router);
}

}  // namespace geminid::collectives
