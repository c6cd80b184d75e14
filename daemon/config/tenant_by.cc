#include "daemon/config/tenant_by.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/suggest.h"

namespace geminid::config {
namespace {

constexpr std::array<std::pair<const char*, TenantBy>, 4> kNames = {{
    {"container", TenantBy::kContainer},
    {"uid", TenantBy::kUid},
    {"uid_gid", TenantBy::kUidGid},
    {"cgroup", TenantBy::kCgroup},
}};

bool IsNumberAfter(absl::string_view text, absl::string_view prefix) {
  uint32_t number;
  return absl::ConsumePrefix(&text, prefix) && absl::SimpleAtoi(text, &number);
}

}  // namespace

absl::StatusOr<TenantBy> ParseTenantBy(const std::string& text) {
  for (const auto& [name, by] : kNames) {
    if (text == name) return by;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not container, uid, uid_gid or cgroup",
                   base::DidYouMean(text, {"container", "uid", "uid_gid", "cgroup"})));
}

absl::Status CheckTenant(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  const bool is_user = parts.size() <= 2 && IsNumberAfter(parts[0], "uid:") &&
                       (parts.size() == 1 || IsNumberAfter(parts[1], "gid:"));
  if (text == "*" || is_user || absl::StartsWith(text, "cgroup:/")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tenant '", text, "' is not uid:NUMBER, uid:NUMBER,gid:NUMBER, cgroup:/PATH or *"));
}

}  // namespace geminid::config
