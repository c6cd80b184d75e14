#include "daemon/service/watch/pages.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace geminid::service {

std::string ToToken(const PageStart& start) { return absl::StrCat(start.session, "/", start.item); }

absl::StatusOr<PageStart> FromToken(const std::string& token) {
  if (token.empty()) return PageStart{};
  const std::pair<std::string, std::string> parts = absl::StrSplit(token, absl::MaxSplits('/', 1));
  PageStart start;
  if (absl::SimpleAtoi(parts.first, &start.session) &&
      absl::SimpleAtoi(parts.second, &start.item) && ToToken(start) == token) {
    return start;
  }
  return absl::InvalidArgumentError(
      "this daemon did not issue the page token; list again from the beginning, without a token");
}

}  // namespace geminid::service
