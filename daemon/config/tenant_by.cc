#include "daemon/config/tenant_by.h"

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

// The owner of a range of ids: a number, or a name that /etc/passwd does not have.
bool IsOwnerAfter(absl::string_view text, absl::string_view prefix) {
  return absl::ConsumePrefix(&text, prefix) && !text.empty() &&
         text.find_first_of(",/ ") == absl::string_view::npos;
}

bool IsUser(absl::string_view text) {
  return IsNumberAfter(text, "uid:") || IsOwnerAfter(text, "subuid:");
}
bool IsGroup(absl::string_view text) {
  return IsNumberAfter(text, "gid:") || IsOwnerAfter(text, "subgid:");
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
  const bool is_user =
      parts.size() <= 2 && IsUser(parts[0]) && (parts.size() == 1 || IsGroup(parts[1]));
  if (text == "*" || is_user || absl::StartsWith(text, "cgroup:/")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tenant '", text,
                   "' is not uid:NUMBER, uid:NUMBER,gid:NUMBER, subuid:OWNER, cgroup:/PATH or *"));
}

}  // namespace geminid::config
