#include "training/nn/parallel/experts/routing.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// The `choices` experts with the largest logits, in falling order. A NaN is never the larger one.
void Choose(std::span<const float> logits, std::span<uint32_t> chosen) {
  std::vector<bool> taken(logits.size());
  for (uint32_t& choice : chosen) {
    size_t best = logits.size();
    for (size_t expert = 0; expert < logits.size(); ++expert) {
      if (!taken[expert] && (best == logits.size() || logits[expert] > logits[best])) best = expert;
    }
    taken[best] = true;
    choice = static_cast<uint32_t>(best);
  }
}

// exp(logit - top), divided by the sum of these values.
template <typename LogitAt>
void Softmax(size_t count, LogitAt logit_at, float* out) {
  double top = logit_at(0);
  for (size_t i = 1; i < count; ++i) top = std::max(top, logit_at(i));
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(logit_at(i) - top);
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(std::exp(logit_at(i) - top) / sum);
  }
}

size_t CapacityOf(const RoutingOptions& options, size_t tokens) {
  if (options.capacity_factor == 0) return tokens;
  const double even =
      static_cast<double>(options.choices * tokens) / static_cast<double>(options.experts);
  const double capacity = std::ceil(options.capacity_factor * even);
  return capacity < static_cast<double>(tokens) ? static_cast<size_t>(capacity) : tokens;
}

// Marks which choices of a group of tokens are within capacity. `kept` is [tokens, choices].
void Keep(const Routing& routing, const TokenGroup& group, std::vector<bool>* kept) {
  const size_t choices = routing.options.choices;
  const size_t capacity = CapacityOf(routing.options, group.count);
  std::vector<size_t> load(routing.options.experts);
  for (size_t choice = 0; choice < choices; ++choice) {
    for (size_t token = group.first; token < group.first + group.count; ++token) {
      const size_t at = token * choices + choice;
      (*kept)[at] = load[routing.chosen[at]]++ < capacity;
    }
  }
}

std::vector<bool> KeptChoices(const Routing& routing) {
  std::vector<bool> kept(routing.chosen.size());
  const size_t group = routing.options.capacity_group;
  const size_t count = group == 0 ? routing.tokens : group;
  for (size_t first = 0; first < routing.tokens; first += count) {
    Keep(routing, {.first = first, .count = count}, &kept);
  }
  return kept;
}

void ListRows(const std::vector<bool>& kept, Routing* routing) {
  std::vector<size_t>& first = routing->first;
  first.assign(routing->options.experts + 1, 0);
  for (size_t at = 0; at < kept.size(); ++at) {
    if (kept[at]) ++first[routing->chosen[at] + 1];
  }
  for (size_t expert = 0; expert < routing->options.experts; ++expert) {
    first[expert + 1] += first[expert];
  }
  routing->rows.resize(first.back());
  std::vector<size_t> next(first.begin(), first.end() - 1);
  for (size_t at = 0; at < kept.size(); ++at) {
    if (!kept[at]) continue;
    routing->rows[next[routing->chosen[at]]++] = {at / routing->options.choices,
                                                  at % routing->options.choices};
  }
}

// f of each expert in a group of tokens (see BalanceTerm).
std::vector<double> LoadOf(const Routing& routing, const TokenGroup& group) {
  const size_t choices = routing.options.choices;
  std::vector<double> load(routing.options.experts);
  const double each = 1 / static_cast<double>(group.count);
  for (size_t i = 0; i < group.count * choices; ++i) {
    load[routing.chosen[group.first * choices + i]] += each;
  }
  return load;
}

// Adds the gradient of the logits through the weights of one token.
void AddWeights(const Routing& routing, size_t token, std::span<const double> dw,
                std::span<double> dz) {
  const RoutingOptions& options = routing.options;
  const float* const w = routing.weights.data() + token * options.choices;
  const uint32_t* const chosen = routing.chosen.data() + token * options.choices;
  double mean = 0;
  for (size_t i = 0; i < options.choices; ++i) mean += static_cast<double>(w[i]) * dw[i];
  for (size_t i = 0; i < options.choices; ++i) dz[chosen[i]] += static_cast<double>(w[i]) * dw[i];
  if (options.mixing == Mixing::kOverChosen) {
    for (size_t i = 0; i < options.choices; ++i) {
      dz[chosen[i]] -= static_cast<double>(w[i]) * mean;
    }
    return;
  }
  const float* const p = routing.probabilities.data() + token * options.experts;
  for (size_t expert = 0; expert < options.experts; ++expert) {
    dz[expert] -= static_cast<double>(p[expert]) * mean;
  }
}

// Adds the gradient of the balance loss. The gradient of a probability is `scale` f.
void AddBalance(const Routing& routing, size_t token, double scale, const std::vector<double>& load,
                std::span<double> dz) {
  const size_t experts = routing.options.experts;
  const float* const p = routing.probabilities.data() + token * experts;
  double mean = 0;
  for (size_t e = 0; e < experts; ++e) mean += static_cast<double>(p[e]) * load[e];
  for (size_t e = 0; e < experts; ++e) {
    dz[e] += scale * static_cast<double>(p[e]) * (load[e] - mean);
  }
}

absl::Status CheckSize(const char* what, size_t given, size_t needed) {
  if (given == needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s have %d elements; this routing has %d", what, given, needed));
}

}  // namespace

absl::Status Validate(const RoutingOptions& options) {
  if (options.choices < 1 || options.choices > options.experts) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d experts for each token are not from 1 to the %d that there are",
                        options.choices, options.experts));
  }
  if (options.capacity_factor >= 0 && std::isfinite(options.capacity_factor)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "a capacity factor of %g; it must be positive, such as 1.25, or 0 to drop nothing",
      options.capacity_factor));
}

absl::StatusOr<Routing> Route(const RoutingOptions& options, std::span<const float> logits) {
  GEMINID_RETURN_IF_ERROR(Validate(options));
  if (logits.size() % options.experts != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d logits are not those of whole tokens for %d experts", logits.size(), options.experts));
  }
  Routing routing = {.options = options, .tokens = logits.size() / options.experts};
  if (options.capacity_group > 0 && routing.tokens % options.capacity_group != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d tokens cannot be divided into groups of %d; take a divisor of the tokens",
        routing.tokens, options.capacity_group));
  }
  routing.chosen.resize(routing.tokens * options.choices);
  routing.weights.resize(routing.tokens * options.choices);
  routing.probabilities.resize(logits.size());
  for (size_t token = 0; token < routing.tokens; ++token) {
    const std::span<const float> z = logits.subspan(token * options.experts, options.experts);
    const std::span<uint32_t> chosen(routing.chosen.data() + token * options.choices,
                                     options.choices);
    float* const weights = routing.weights.data() + token * options.choices;
    float* const probabilities = routing.probabilities.data() + token * options.experts;
    Choose(z, chosen);
    Softmax(
        z.size(), [z](size_t e) { return static_cast<double>(z[e]); }, probabilities);
    if (options.mixing == Mixing::kOverChosen) {
      Softmax(
          chosen.size(), [&](size_t i) { return static_cast<double>(z[chosen[i]]); }, weights);
      continue;
    }
    for (size_t i = 0; i < chosen.size(); ++i) weights[i] = probabilities[chosen[i]];
  }
  ListRows(KeptChoices(routing), &routing);
  return routing;
}

absl::Status RouteBackward(const Routing& routing, std::span<const float> weight_gradients,
                           const BalanceTerm& balance, std::span<float> logit_gradients) {
  const RoutingOptions& options = routing.options;
  GEMINID_RETURN_IF_ERROR(
      CheckSize("gradients of the weights", weight_gradients.size(), routing.weights.size()));
  GEMINID_RETURN_IF_ERROR(
      CheckSize("gradients of the logits", logit_gradients.size(), routing.probabilities.size()));
  if (balance.scale != 0 && (balance.group == 0 || routing.tokens % balance.group != 0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d tokens cannot be balanced in groups of %d", routing.tokens, balance.group));
  }
  // The weights of dropped choices multiplied nothing, so their gradients are zero.
  std::vector<double> dw(weight_gradients.size());
  for (const RoutedRow& row : routing.rows) {
    const size_t at = row.token * options.choices + row.choice;
    dw[at] = static_cast<double>(weight_gradients[at]);
  }
  std::vector<double> load, dz(options.experts);
  for (size_t token = 0; token < routing.tokens; ++token) {
    std::ranges::fill(dz, 0.0);
    AddWeights(routing, token, std::span(dw).subspan(token * options.choices, options.choices), dz);
    if (balance.scale != 0) {
      if (token % balance.group == 0) load = LoadOf(routing, {token, balance.group});
      AddBalance(
          routing, token,
          balance.scale * static_cast<double>(options.experts) / static_cast<double>(balance.group),
          load, dz);
    }
    for (size_t e = 0; e < options.experts; ++e) {
      logit_gradients[token * options.experts + e] = static_cast<float>(dz[e]);
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::collectives
