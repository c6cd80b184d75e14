// Reads numbers from the flags of geminictl plan. Each function reads a flag into *value if its
// text is not empty. INVALID_ARGUMENT names the flag.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_NUMBERS_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_NUMBERS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace geminid::ctl {

inline constexpr double kRateMax = 1e24;

absl::Status WrongFlag(const char* flag, const std::string& text, const std::string& what);
// INVALID_ARGUMENT with the flag before the status's message; OK if `status` is OK.
absl::Status NamedFlag(const std::string& flag, const absl::Status& status);

absl::Status ReadCount(const char* flag, const std::string& text, std::uint64_t* value);
absl::Status ReadCount(const char* flag, const std::string& text, std::uint32_t* value);
// A number above 0 and at most `most`.
absl::Status ReadNumber(const char* flag, const std::string& text, double most, double* value);
absl::Status ReadBytes(const char* flag, const std::string& text, std::uint64_t* value);
absl::Status ReadRate(const char* flag, const std::string& text, double* value);
// A time such as "10us"; at most a second.
absl::Status ReadLatency(const char* flag, const std::string& text, double* seconds);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_NUMBERS_H_
