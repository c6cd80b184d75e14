// What a masked language model is trained to foretell (BERT, Devlin et al. 2018, arXiv:1810.04805,
// section 3.1): 15 % of the tokens of each sequence are chosen. Of these 80 % are replaced by the
// mask token and 10 % by a token at random; the others stay.
#ifndef GEMINID_TRAINING_MODELS_MASKING_H_
#define GEMINID_TRAINING_MODELS_MASKING_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::trainer {

// How many tokens of a sequence of so many are chosen, at least one. As many in each sequence, as
// in the original implementation: so a step's loss is a mean over a known number of tokens.
constexpr uint64_t MaskedTokens(uint64_t tokens) {
  return std::max<uint64_t>(1, (15 * tokens + 50) / 100);
}

struct Masking {
  uint64_t mask_token = 0;
  std::vector<uint64_t> special_tokens = {};  // that are never chosen; nor is mask_token

  friend bool operator==(const Masking&, const Masking&) = default;
};

// By the tokenizer's files in a folder: tokenizer.json, else vocab.txt, in which a token's number
// is that of its line. The mask token is called as tokenizer_config.json says ("mask_token"), else
// [MASK]. Unset without such files, or where they have no such token. INVALID_ARGUMENT names a file
// that is none.
absl::StatusOr<std::optional<Masking>> FindMasking(const std::string& folder);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_MASKING_H_
