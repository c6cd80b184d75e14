// A checksum of the training data, by which a checkpoint recognises the data of its run.
#ifndef GEMINID_TRAINING_DATA_DATA_SUM_H_
#define GEMINID_TRAINING_DATA_DATA_SUM_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "training/data/token_source.h"

namespace geminid::trainer {

// Up to this number of tokens, the checksum covers all tokens. Of more tokens it covers blocks that
// are spread evenly over them.
inline constexpr uint64_t kSummedTokens = uint64_t{64} << 20;

// "19000 bytes, CRC-32C 1a2b3c4d": the number of tokens and a checksum over them. Files of
// different formats with the same tokens have the same sum. Reads at most kSummedTokens. Errors are
// those of Read.
absl::StatusOr<std::string> SumOfData(const TokenSource& source,
                                      uint64_t most_tokens = kSummedTokens);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_DATA_SUM_H_
