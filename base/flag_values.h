// Texts of flags turned into values. Errors are INVALID_ARGUMENT and name the flag, what was given
// and what would be right.
#ifndef GEMINID_BASE_FLAG_VALUES_H_
#define GEMINID_BASE_FLAG_VALUES_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace geminid::base {

absl::StatusOr<uint64_t> ParseCount(const std::string& flag, const std::string& text, uint64_t min,
                                    uint64_t max);
absl::StatusOr<double> ParseReal(const std::string& flag, const std::string& text, double min,
                                 double max);
absl::StatusOr<bool> ParseSwitch(const std::string& flag, const std::string& text);  // on or off

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
      absl::StrCat(flag, " is '", text, "'; it must be one of: ", allowed));
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_FLAG_VALUES_H_
