#include "base/bytes.h"

#include <array>
#include <cstdio>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace geminid::base {
namespace {

struct Unit {
  const char* name;
  uint64_t bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"KiB", uint64_t{1} << 10},
                                          {"MiB", uint64_t{1} << 20},
                                          {"GiB", uint64_t{1} << 30},
                                          {"TiB", uint64_t{1} << 40},
                                          {"kB", 1000},
                                          {"MB", 1000000},
                                          {"GB", 1000000000},
                                          {"TB", 1000000000000}}};

// Enough for one byte of a TiB.
constexpr size_t kMaxFractionDigits = 12;

absl::Status Invalid(const std::string& text, const char* problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a size: ", problem,
                   "; write a whole number of bytes, or a number with KiB, MiB, GiB, TiB, kB, "
                   "MB, GB or TB, as in 24MiB or 8.6MiB"));
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  __extension__ using Wide = unsigned __int128;
  if (text.empty()) return Invalid(text, "it is empty");
  if (text[0] == '-' || text[0] == '+') return Invalid(text, "a sign is not allowed");
  size_t at = 0;
  Wide whole = 0;
  for (; at < text.size() && IsDigit(text[at]); ++at) {
    whole = whole * 10 + static_cast<Wide>(text[at] - '0');
    if (whole > std::numeric_limits<uint64_t>::max()) return Invalid(text, "it is too large");
  }
  if (at == 0) return Invalid(text, "it does not begin with a digit");
  Wide numerator = 0;
  Wide denominator = 1;
  if (at < text.size() && text[at] == '.') {
    const size_t begin = ++at;
    for (; at < text.size() && IsDigit(text[at]); ++at) {
      if (at - begin >= kMaxFractionDigits) return Invalid(text, "it has too many decimals");
      numerator = numerator * 10 + static_cast<Wide>(text[at] - '0');
      denominator *= 10;
    }
    if (at == begin) return Invalid(text, "digits must follow the point");
  }
  const std::string name = text.substr(at);
  for (const Unit& unit : kUnits) {
    if (name != unit.name) continue;
    if (unit.bytes == 1 && numerator != 0) return Invalid(text, "bytes have no fraction");
    const Wide bytes = whole * unit.bytes + numerator * unit.bytes / denominator;
    if (bytes == 0 && numerator != 0) return Invalid(text, "it is less than a byte");
    if (bytes > std::numeric_limits<uint64_t>::max()) return Invalid(text, "it is too large");
    return static_cast<uint64_t>(bytes);
  }
  return Invalid(text, "the unit is unknown");
}

absl::StatusOr<uint64_t> ParseBytesPerSecond(const std::string& text) {
  constexpr size_t kSuffix = 2;
  if (text.size() <= kSuffix || text.substr(text.size() - kSuffix) != "/s") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a bandwidth; write a size per second, as in 10GB/s"));
  }
  return ParseBytes(text.substr(0, text.size() - kSuffix));
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  char buffer[32];
  if (unit == 0) {
    std::snprintf(buffer, sizeof(buffer), "%llu B", static_cast<unsigned long long>(bytes));
  } else {
    std::snprintf(buffer, sizeof(buffer), value < 100 ? "%.1f %s" : "%.0f %s", value, kNames[unit]);
  }
  return buffer;
}

}  // namespace geminid::base
