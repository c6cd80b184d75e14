// What is learnt: tokens by number, wherever they are kept.
#ifndef GEMINID_TOOLS_TRAINER_DATA_TOKEN_SOURCE_H_
#define GEMINID_TOOLS_TRAINER_DATA_TOKEN_SOURCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::trainer {

// Immutable; any number of threads may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual uint64_t tokens() const = 0;
  // "bytes" or "tokens", for messages.
  virtual const char* unit() const = 0;
  // Writes tokens [first, first + out.size()), which exist. INVALID_ARGUMENT names the file and the
  // place of a token that is outside of the vocabulary.
  virtual absl::Status Read(uint64_t first, std::span<int32_t> out) const = 0;
};

// Consecutive tokens of a source, which outlives it.
struct TokenRange {
  const TokenSource* source = nullptr;
  uint64_t first = 0;
  uint64_t tokens = 0;

  static TokenRange All(const TokenSource& source) { return {&source, 0, source.tokens()}; }
};

// INVALID_ARGUMENT unless the range holds at least one sequence and its next token.
absl::Status CheckLength(const TokenRange& range, uint64_t context);

// The tokens [start, start + count) of the range as inputs, and those one further on as what they
// are to foretell; both are added at the ends.
absl::Status AppendSequence(const TokenRange& range, uint64_t start, uint64_t count,
                            std::vector<int32_t>* tokens, std::vector<int32_t>* targets);

struct Split {
  TokenRange training;
  TokenRange held_out;  // the last ones; none with a share of 0
};

// Holds out the last `share` of the tokens, rounded to whole ones. INVALID_ARGUMENT if a part that
// is not empty by intention has no sequence.
absl::StatusOr<Split> SplitTokens(const TokenSource& source, double share, uint64_t context);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_DATA_TOKEN_SOURCE_H_
