// Chooses and hides the tokens that a masked language model is to foretell
// (training/models/masking.h). Pure.
#ifndef GEMINID_TRAINING_DATA_MASKED_TOKENS_H_
#define GEMINID_TRAINING_DATA_MASKED_TOKENS_H_

#include <cstdint>
#include <span>

#include "training/models/masking.h"

namespace geminid::trainer {

// Of a run's sample of that number: other tokens are chosen each time that a sequence comes again.
// Depends on nothing else than these, as the sample does.
uint64_t MaskStreamOfSample(uint64_t seed, uint64_t sample);
// Of a sequence that is measured: the same tokens in every run.
uint64_t MaskStreamOfStart(uint64_t first_token);

// `tokens` is a whole sequence. Chooses MaskedTokens of those that are not special, or all of them
// where they are fewer, each choice as likely as any other. `targets` gets what a chosen token was,
// and kNoTarget for the others. A random token is one of `vocabulary`.
void MaskSequence(const Masking& masking, uint64_t vocabulary, uint64_t stream,
                  std::span<int32_t> tokens, std::span<int32_t> targets);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_MASKED_TOKENS_H_
