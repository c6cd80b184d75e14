// The masking that trains a masked language model (BERT, Devlin et al. 2018, arXiv:1810.04805,
// section 3.1). 15 % of the tokens of each sequence are chosen. 80 % of the chosen tokens become
// the mask token, 10 % a random token, and 10 % stay.
#ifndef GEMINID_TRAINING_MODELS_MASKING_H_
#define GEMINID_TRAINING_MODELS_MASKING_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::trainer {

// The number of chosen tokens in a sequence of `tokens` tokens, at least one. All sequences have
// the same number, as in the original implementation, so a step's loss is a mean over a known
// number.
constexpr uint64_t MaskedTokens(uint64_t tokens) {
  return std::max<uint64_t>(1, (15 * tokens + 50) / 100);
}

struct Masking {
  uint64_t mask_token = 0;
  std::vector<uint64_t> special_tokens = {};  // never chosen; neither is mask_token

  friend bool operator==(const Masking&, const Masking&) = default;
};

// Finds the tokens in the tokenizer's files of a folder: tokenizer.json, else vocab.txt, where a
// token's number is the number of its line. The mask token's name is "mask_token" of
// tokenizer_config.json, else [MASK]. Unset if the files or the token do not exist.
// INVALID_ARGUMENT names a malformed file.
absl::StatusOr<std::optional<Masking>> FindMasking(const std::string& folder);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_MASKING_H_
