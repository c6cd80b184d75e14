#include "base/flag_values.h"

#include <algorithm>

#include "absl/strings/numbers.h"

namespace geminid::base {

absl::StatusOr<uint64_t> ParseCount(const std::string& flag, const std::string& text, uint64_t min,
                                    uint64_t max) {
  uint64_t value = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  if (digits && absl::SimpleAtoi(text, &value) && value >= min && value <= max) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is '", text, "'; it must be a whole number from ", min, " to ", max));
}

absl::StatusOr<double> ParseReal(const std::string& flag, const std::string& text, double min,
                                 double max) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && value >= min && value <= max) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is '", text, "'; it must be a number from ", min, " to ", max));
}

absl::StatusOr<bool> ParseSwitch(const std::string& flag, const std::string& text) {
  return ParseWord(flag, text, std::array{std::pair{"on", true}, std::pair{"off", false}});
}

}  // namespace geminid::base
