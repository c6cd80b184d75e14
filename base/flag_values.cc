#include "base/flag_values.h"

#include <algorithm>
#include <array>
#include <cstdio>

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

std::string ExactBytes(uint64_t bytes) {
  static constexpr std::array<const char*, 4> kNames = {"TiB", "GiB", "MiB", "KiB"};
  constexpr uint64_t kParts = 16;  // of a unit: no more than four decimals
  for (size_t i = 0; i < kNames.size(); ++i) {
    const uint64_t unit = uint64_t{1} << (10 * (kNames.size() - i));
    if (bytes < unit || bytes % (unit / kParts) != 0) continue;
    const double value = static_cast<double>(bytes) / static_cast<double>(unit);
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.15g%s", value, kNames[i]);
    return buffer;
  }
  return std::to_string(bytes) + "B";
}

}  // namespace geminid::base
