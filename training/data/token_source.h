// The interface of training data: tokens by number, from a text or from token files, or the labels
// of images.
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

// The files that were read, for people.
struct DataListing {
  std::vector<DataFile> files;
  std::vector<std::string> left_out;  // the file or directory, and why
};

// "3 files, 1200 bytes: a.txt 200, b.txt 400, c.txt 600". Names only the first files if there are
// many.
std::string Describe(const DataListing& listing);

// The first difference between the files of two listings, for people: "'b.txt' has 700 bytes and
// had 400". Empty if there is none.
std::string FirstDifference(const DataListing& was, const DataListing& is);

// How Check looks at the tokens before the first step.
struct TokenCheck {
  size_t threads = 1;
  uint64_t part = 0;  // the part to check, of `parts` equal ones
  uint64_t parts = 1;
  // Called by one thread at a time. The numbers are tokens of the part.
  std::function<void(uint64_t done, uint64_t of)> on_progress = nullptr;
};

// Called after each block that was read.
using OnBytesRead = std::function<void(uint64_t done, uint64_t of)>;

class Images;  // images.h

// Immutable; any number of threads may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual uint64_t tokens() const = 0;
  // "bytes", "tokens" or "images", for messages.
  virtual const char* unit() const = 0;
  // Writes the tokens [first, first + out.size()), which must exist. INVALID_ARGUMENT names the
  // file and the position of a token outside of the vocabulary.
  virtual absl::Status Read(uint64_t first, std::span<int32_t> out) const = 0;
  // Looks at all tokens of the part. The error is that of Read for the first token outside of the
  // vocabulary.
  virtual absl::Status Check(const TokenCheck&) const { return absl::OkStatus(); }

  // Whose labels the tokens are: each is a sample by itself. Null: a sample is a sequence.
  virtual const Images* images() const { return nullptr; }

  const DataListing& listing() const { return listing_; }

 protected:
  DataListing listing_;
};

// Consecutive tokens of a source. The source outlives the range.
struct TokenRange {
  const TokenSource* source = nullptr;
  uint64_t first = 0;
  uint64_t tokens = 0;

  static TokenRange All(const TokenSource& source) { return {&source, 0, source.tokens()}; }
};

// How many samples an epoch has: images, or sequences with the token after each.
uint64_t SamplesIn(const TokenRange& range, uint64_t context);

// INVALID_ARGUMENT unless the range holds at least one sample; says the largest context that would
// do.
absl::Status CheckLength(const TokenRange& range, uint64_t context);

// Appends the tokens [start, start + count) of the range as inputs, and the tokens one position
// later as targets.
absl::Status AppendSequence(const TokenRange& range, uint64_t start, uint64_t count,
                            std::vector<int32_t>* tokens, std::vector<int32_t>* targets);

struct Split {
  TokenRange training;
  TokenRange held_out;  // the last tokens; empty if the share is 0
};

// Holds out the last `share` of the tokens, rounded to whole tokens. INVALID_ARGUMENT if a part
// that should not be empty is shorter than a sequence.
absl::StatusOr<Split> SplitTokens(const TokenSource& source, double share, uint64_t context);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_TOKEN_SOURCE_H_
