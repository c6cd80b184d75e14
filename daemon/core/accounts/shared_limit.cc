#include "daemon/core/accounts/shared_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::core {

uint64_t SharedLimit::UsedBy(const std::string& tenant) const {
  const auto found = by_tenant_.find(tenant);
  return found == by_tenant_.end() ? 0 : found->second;
}

absl::Status SharedLimit::Take(const std::string& tenant, uint64_t count) {
  const uint64_t free = total_ > used_ ? total_ - used_ : 0;
  const uint64_t own = UsedBy(tenant);
  // Afterwards: own + count <= free - count.
  if (count <= free && own <= free - count && count <= free - count - own) {
    if (count > 0) by_tenant_[tenant] += count;
    used_ += count;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "asked for ", count, " ", name_, ": tenant ", tenant, " holds ", own, ", and ", free,
      " of the daemon's ", total_, " are free; a tenant may hold at most as many as stay free for ",
      "others; end some of ", tenant, "'s, or raise ", name_, " in the daemon's configuration"));
}

void SharedLimit::TakeAgain(const std::string& tenant, uint64_t count) {
  if (count > 0) by_tenant_[tenant] += count;
  used_ += count;
}

void SharedLimit::Give(const std::string& tenant, uint64_t count) {
  const auto found = by_tenant_.find(tenant);
  if (found == by_tenant_.end()) return;
  const uint64_t given = std::min(count, found->second);
  used_ -= given;
  found->second -= given;
  if (found->second == 0) by_tenant_.erase(found);
}

}  // namespace geminid::core
