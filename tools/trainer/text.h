// The training text: bytes, each a token.
#ifndef GEMINID_TOOLS_TRAINER_TEXT_H_
#define GEMINID_TOOLS_TRAINER_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::trainer {

// Every rank keeps the whole text in memory.
inline constexpr uint64_t kTextBytesMax = uint64_t{4} << 30;

// The bytes of a file, or of all regular files below a directory, sorted by path and put end to
// end; names that begin with a dot are passed over. NOT_FOUND, PERMISSION_DENIED or
// INVALID_ARGUMENT say which path and what to do.
absl::StatusOr<std::vector<uint8_t>> LoadText(const std::string& path);

// INVALID_ARGUMENT unless a text of `bytes` holds at least one sequence and its next byte.
absl::Status CheckLength(uint64_t bytes, uint64_t context);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_TEXT_H_
