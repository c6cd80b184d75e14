#include "daemon/config/mode.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::config {
namespace {

constexpr size_t kMostDigits = 4;  // as in "0777"

bool IsOctal(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '7'; });
}

}  // namespace

absl::StatusOr<mode_t> ParseMode(const std::string& text) {
  if (!IsOctal(text) || text.size() > kMostDigits || text.front() != '0') {
    const bool lacks_zero = IsOctal(text) && text.size() == kMostDigits - 1;
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a permission; write it in octal with a 0 in front, such as 0660",
        lacks_zero ? absl::StrCat("; did you mean 0", text, "?") : ""));
  }
  mode_t mode = 0;
  for (const char digit : text) mode = mode * 8 + static_cast<mode_t>(digit - '0');
  return mode;
}

}  // namespace geminid::config
