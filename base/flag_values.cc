#include "base/flag_values.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"

namespace geminid::base {
namespace {

// Smaller numbers without a unit are hardly meant as bytes.
constexpr uint64_t kLeastWithoutUnit = uint64_t{1} << 20;

// ParseBytes's error, after the flag and the text.
absl::Status WrongSize(const std::string& flag, const std::string& text,
                       const absl::Status& status) {
  const std::string words(status.message());
  return absl::InvalidArgumentError(absl::StrCat(
      WithValue(flag, text), absl::StripPrefix(words, absl::StrCat("'", text, "' is "))));
}

}  // namespace

std::string WithValue(const std::string& flag, const std::string& text) {
  if (!absl::StartsWith(flag, "--")) return absl::StrCat(flag, " is '", text, "'; ");
  const bool is_one_word = !text.empty() && text.find_first_of(" \t\n'\"") == std::string::npos;
  return is_one_word ? absl::StrCat(flag, " ", text, ": ")
                     : absl::StrCat(flag, " '", text, "': ");
}

absl::StatusOr<uint64_t> ParseMemory(const std::string& flag, const std::string& text) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return WrongSize(flag, text, bytes.status());
  const std::optional<std::string> lacks = LacksUnit(text);
  if (lacks) return absl::InvalidArgumentError(absl::StrCat(WithValue(flag, text), *lacks));
  return bytes;
}

absl::StatusOr<uint64_t> ParseBandwidth(const std::string& flag, const std::string& text) {
  const absl::StatusOr<uint64_t> speed = ParseBytesPerSecond(text);
  return speed.ok() ? speed : WrongSize(flag, text, speed.status());
}

std::optional<std::string> LacksUnit(const std::string& text) {
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(text, &bytes) || bytes == 0 || bytes >= kLeastWithoutUnit) {
    return std::nullopt;
  }
  return absl::StrCat("that is ", bytes, bytes == 1 ? " byte" : " bytes",
                      "; write the unit, as in ", bytes, "MiB or ", bytes, "GiB, or ", bytes,
                      "B if bytes are meant");
}

absl::StatusOr<uint64_t> ParseCount(const std::string& flag, const std::string& text, uint64_t min,
                                    uint64_t max) {
  uint64_t value = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  if (digits && absl::SimpleAtoi(text, &value) && value >= min && value <= max) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(WithValue(flag, text), "it must be a whole number from ", min, " to ", max));
}

absl::StatusOr<double> ParseReal(const std::string& flag, const std::string& text, double min,
                                 double max) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && value >= min && value <= max) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(WithValue(flag, text), "it must be a number from ", min, " to ", max));
}

absl::StatusOr<bool> ParseSwitch(const std::string& flag, const std::string& text) {
  return ParseWord(flag, text, std::array{std::pair{"on", true}, std::pair{"off", false}});
}

std::string ExactBytes(uint64_t bytes) {
  static constexpr std::array<const char*, 4> kNames = {"TiB", "GiB", "MiB", "KiB"};
  constexpr uint64_t kParts = 16;  // of a unit: at most four decimals
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
