// Chooses and hides the tokens that a masked language model must predict
// (training/models/masking.h). Pure.
#ifndef GEMINID_TRAINING_DATA_MASKED_TOKENS_H_
#define GEMINID_TRAINING_DATA_MASKED_TOKENS_H_

#include <cstdint>
#include <span>

#include "training/models/masking.h"

namespace geminid::trainer {

// The random stream for a run's sample of this number. A repeated sequence has another number, and
// so gets other masked tokens. The stream depends only on these arguments, like the sample.
uint64_t MaskStreamOfSample(uint64_t seed, uint64_t sample);
// The random stream for a sequence of an evaluation: the same in every run.
uint64_t MaskStreamOfStart(uint64_t first_token);

// `tokens` is a whole sequence. Chooses MaskedTokens of the tokens that are not special, or all of
// them if there are fewer. All choices are equally likely. `targets` gets the original token where
// one was chosen, and kNoTarget elsewhere. A random token is below `vocabulary`.
void MaskSequence(const Masking& masking, uint64_t vocabulary, uint64_t stream,
                  std::span<int32_t> tokens, std::span<int32_t> targets);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_MASKED_TOKENS_H_
