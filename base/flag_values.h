// Texts of flags turned into values. Errors are INVALID_ARGUMENT and have one form: the flag, what
// was given, what is wrong or would be right.
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

// How an error about a value begins: "--batch 0: ", "--job 'a b': "; for what is no flag, such as a
// variable of the environment, "GEMINID_X is 'y'; ".
std::string WithValue(const std::string& flag, const std::string& text);

absl::StatusOr<uint64_t> ParseCount(const std::string& flag, const std::string& text, uint64_t min,
                                    uint64_t max);
absl::StatusOr<double> ParseReal(const std::string& flag, const std::string& text, double min,
                                 double max);
absl::StatusOr<bool> ParseSwitch(const std::string& flag, const std::string& text);  // on or off

// An amount of memory, as ParseBytes takes it. A small number without a unit is refused: whoever
// writes 64 means 64 GiB or 64 MiB, and whoever means bytes can write 64B.
absl::StatusOr<uint64_t> ParseMemory(const std::string& flag, const std::string& text);
absl::StatusOr<uint64_t> ParseBandwidth(const std::string& flag, const std::string& text);

// Whether `text`, which is a size, lacks the unit that so small a number needs; why.
std::optional<std::string> LacksUnit(const std::string& text);

// A size to the byte, as base::ParseBytes takes it: "4.0625MiB", "4100B". For what people are told
// to ask for.
std::string ExactBytes(uint64_t bytes);

// One of a few words.
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
