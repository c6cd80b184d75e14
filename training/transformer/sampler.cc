#include "training/transformer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/counter_random.h"

namespace geminid::trainer {
namespace {

// Separates the random numbers of the choices from other streams with the same seed.
constexpr uint64_t kChoiceStream = 0x63686F696365;  // "choice"

}  // namespace

bool CanBeChosenFrom(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return std::ranges::all_of(logits, [](float value) { return value < kInfinity; }) &&
         std::ranges::any_of(logits, [](float value) { return value > -kInfinity; });
}

int32_t SampleToken(const TokenSampling& sampling, uint64_t number, std::span<const float> logits) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature == 0 || sampling.top_k == 1) {
    return static_cast<int32_t>(likeliest - logits.begin());
  }
  std::vector<int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const size_t count =
      sampling.top_k == 0 ? tokens.size() : std::min<size_t>(sampling.top_k, tokens.size());
  const auto value = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  std::partial_sort(
      tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count), tokens.end(),
      [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  tokens.resize(count);
  std::vector<double> weights;
  for (const int32_t token : tokens) {
    const double below = static_cast<double>(value(token)) - static_cast<double>(*likeliest);
    weights.push_back(std::exp(below / sampling.temperature));
  }
  double left = base::UnitInterval(base::RandomBits(sampling.seed ^ kChoiceStream, number)) *
                std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < count; ++i) {
    left -= weights[i];
    if (left < 0) return tokens[i];
  }
  return tokens.back();  // reached by rounding alone
}

}  // namespace geminid::trainer
