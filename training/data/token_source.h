// The interface of training data: tokens by number, from a text or from token files.
#ifndef GEMINID_TRAINING_DATA_TOKEN_SOURCE_H_
#define GEMINID_TRAINING_DATA_TOKEN_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::trainer {

struct DataFile {
  std::string path;
  uint64_t bytes = 0;
};

// What was read, for people.
struct DataListing {
  std::vector<DataFile> files;
  std::vector<std::string> left_out;  // which file or directory, and why
};

// "3 files, 1200 bytes: a.txt 200, b.txt 400, c.txt 600". Of many files the first ones are named.
std::string Describe(const DataListing& listing);

// The first difference between the files of two listings, for people: "'b.txt' has 700 bytes and
// had 400". Empty where there is none.
std::string FirstDifference(const DataListing& was, const DataListing& is);

// How every token is looked at before the first step.
struct TokenCheck {
  size_t threads = 1;
  uint64_t part = 0;  // which of `parts` equal parts of the tokens
  uint64_t parts = 1;
  // Called by one thread at a time, with tokens of the part.
  std::function<void(uint64_t done, uint64_t of)> on_progress = nullptr;
};

// Called between blocks of what is read.
using OnBytesRead = std::function<void(uint64_t done, uint64_t of)>;

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
  // As Read says of the first token that is outside of the vocabulary.
  virtual absl::Status Check(const TokenCheck&) const { return absl::OkStatus(); }

  const DataListing& listing() const { return listing_; }

 protected:
  DataListing listing_;
};

// Consecutive tokens of a source, which outlives it.
struct TokenRange {
  const TokenSource* source = nullptr;
  uint64_t first = 0;
  uint64_t tokens = 0;

  static TokenRange All(const TokenSource& source) { return {&source, 0, source.tokens()}; }
};

// INVALID_ARGUMENT unless the range holds at least one sequence and its next token; says the
// largest context that would do.
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

#endif  // GEMINID_TRAINING_DATA_TOKEN_SOURCE_H_
