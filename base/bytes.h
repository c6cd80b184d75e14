// Sizes as text, in the same form in every flag, file and message.
//
// Exact: KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB powers of 1000; B or no unit means
// bytes. Units above B may have a decimal fraction; the result is rounded down to whole bytes
// ("8.6MiB" is 9017753), so a limit is never above the given one. Errors: signs, other units,
// trailing text, overflow, and numbers other than zero that round to zero.
#ifndef GEMINID_BASE_BYTES_H_
#define GEMINID_BASE_BYTES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace geminid::base {

// "16MiB" -> 16777216. The error names the text, what is wrong with it, and what is allowed.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);

// "10GB/s" -> 10000000000. The "/s" is required.
absl::StatusOr<uint64_t> ParseBytesPerSecond(const std::string& text);

// For people: "61.4 GiB", "512 B". Binary units, at most three significant decimals.
std::string FormatBytes(uint64_t bytes);

}  // namespace geminid::base

#endif  // GEMINID_BASE_BYTES_H_
