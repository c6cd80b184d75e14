// Parses values of flags. All errors are INVALID_ARGUMENT with the same form: the flag, its value,
// and what is wrong or what is allowed.
#ifndef GEMINID_BASE_FLAG_VALUES_H_
#define GEMINID_BASE_FLAG_VALUES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace geminid::base {

// The beginning of an error about a value: "--batch 0: ", "--job 'a b': ". For other names than
// flags, such as environment variables: "GEMINID_X is 'y'; ".
std::string WithValue(const std::string& flag, const std::string& text);

absl::StatusOr<uint64_t> ParseCount(const std::string& flag, const std::string& text, uint64_t min,
                                    uint64_t max);
absl::StatusOr<double> ParseReal(const std::string& flag, const std::string& text, double min,
                                 double max);
absl::StatusOr<bool> ParseSwitch(const std::string& flag, const std::string& text);  // on or off

// An amount of memory, as for ParseBytes. A small number without a unit is refused: 64 probably
// means 64 GiB or 64 MiB, and 64 bytes can be written as 64B.
absl::StatusOr<uint64_t> ParseMemory(const std::string& flag, const std::string& text);
absl::StatusOr<uint64_t> ParseBandwidth(const std::string& flag, const std::string& text);

// If `text`, a size, lacks the unit that so small a number needs: the reason.
std::optional<std::string> LacksUnit(const std::string& text);

// The exact size in the form of base::ParseBytes: "4.0625MiB", "4100B". For values that a message
// tells users to set.
std::string ExactBytes(uint64_t bytes);

// Parses one of a few words.
template <typename Value, size_t kCount>
absl::StatusOr<Value> ParseWord(const std::string& flag, const std::string& text,
                                const std::array<std::pair<const char*, Value>, kCount>& words) {
  std::string allowed;
  for (const auto& [word, value] : words) {
    if (text == word) return value;
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", word);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(WithValue(flag, text), "it must be one of: ", allowed));
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_FLAG_VALUES_H_
