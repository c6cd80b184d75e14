// Chooses the next token by the probabilities of all tokens.
#ifndef GEMINID_TRAINING_TRANSFORMER_SAMPLER_H_
#define GEMINID_TRAINING_TRANSFORMER_SAMPLER_H_

#include <cstdint>
#include <span>

namespace geminid::trainer {

struct TokenSampling {
  double temperature = 0;  // 0: the likeliest token; of equals the first
  uint64_t top_k = 0;      // choose among so many of the likeliest tokens; 0: among all
  uint64_t seed = 0;
};

// Whether logits are numbers of which one is the largest: some are finite and the others -infinity.
bool CanBeChosenFrom(std::span<const float> logits);

// The `number`-th choice of a text; depends on the arguments alone. Call it for logits that
// CanBeChosenFrom. A token v that may be chosen
// has the probability exp(logits[v] / temperature), divided by the sum of these values.
int32_t SampleToken(const TokenSampling& sampling, uint64_t number, std::span<const float> logits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_SAMPLER_H_
