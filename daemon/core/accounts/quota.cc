#include "daemon/core/accounts/quota.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::core {

absl::Status ToStatus(const Refusal& refusal) {
  std::string text = absl::StrCat(
      Name(refusal.account), ": asked for ", base::FormatBytes(refusal.asked_bytes), " (",
      refusal.asked_bytes, " bytes), free ", base::FormatBytes(refusal.free_bytes),
      ", largest hole ", base::FormatBytes(refusal.largest_hole_bytes), "; ", refusal.limit);
  if (refusal.returning_bytes > 0) {
    absl::StrAppend(&text, "; ", base::FormatBytes(refusal.returning_bytes),
                    " are being returned to the machine: try again in a moment");
  }
  if (refusal.top_holder.job.empty()) {
    absl::StrAppend(&text, "; no job holds any");
  } else {
    absl::StrAppend(&text, "; most is held by job ", refusal.top_holder.job, " rank ",
                    refusal.top_holder.rank, " (", base::FormatBytes(refusal.top_holder.bytes),
                    ")");
  }
  return absl::ResourceExhaustedError(absl::StrCat(text, "; ", refusal.advice));
}

Quota::Quota(const std::vector<TenantLimits>& limits) { SetLimits(limits); }

void Quota::SetLimits(const std::vector<TenantLimits>& limits) {
  limits_.clear();
  guaranteed_.clear();
  for (const TenantLimits& line : limits) {
    limits_[line.tenant] = line;
    const bool guarantees = line.guaranteed_host_bytes > 0 || line.guaranteed_device_bytes > 0 ||
                            !line.guaranteed_by_device.empty();
    if (guarantees && line.tenant != kEveryoneElse) guaranteed_.insert(line.tenant);
  }
}

const TenantLimits& Quota::Of(const std::string& tenant) const {
  static const TenantLimits* const kNone = new TenantLimits;
  const TenantLimits* const line = LineOf(tenant);
  return line == nullptr ? *kNone : *line;
}

uint64_t Quota::GuaranteedBytes(const std::string& tenant, Account account) const {
  if (!guaranteed_.contains(tenant)) return 0;
  const TenantLimits& limits = Of(tenant);
  if (account.tier == Tier::kHost) return limits.guaranteed_host_bytes;
  if (account.tier != Tier::kDevice) return 0;
  const auto of_device = limits.guaranteed_by_device.find(account.device);
  return of_device == limits.guaranteed_by_device.end() ? limits.guaranteed_device_bytes
                                                        : of_device->second;
}

const TenantLimits* Quota::LineOf(const std::string& tenant) const {
  auto found = limits_.find(tenant);
  for (size_t end = tenant.size(); found == limits_.end() && end > 0;) {
    end = tenant.find_last_of(",/", end - 1);
    if (end == std::string::npos) break;
    found = limits_.find(tenant.substr(0, end));
    if (found == limits_.end()) found = limits_.find(tenant.substr(0, end + 1));
  }
  if (found == limits_.end()) found = limits_.find(kEveryoneElse);
  return found == limits_.end() ? nullptr : &found->second;
}

uint64_t Quota::LimitBytes(const std::string& tenant, Account account) const {
  const TenantLimits& limits = Of(tenant);
  if (account.tier == Tier::kDisk) return limits.disk_bytes;
  if (account.tier != Tier::kDevice) return limits.host_bytes;
  const auto of_device = limits.bytes_by_device.find(account.device);
  return of_device == limits.bytes_by_device.end() ? limits.device_bytes : of_device->second;
}

std::set<std::string> Quota::ChargedTenants() const {
  std::set<std::string> tenants;
  for (const auto& [key, bytes] : charges_) tenants.insert(key.first);
  return tenants;
}

uint64_t Quota::ChargedBytes(const std::string& tenant, Account account) const {
  const auto found = charges_.find({tenant, account});
  return found == charges_.end() ? 0 : found->second;
}

uint64_t Quota::FreeBytes(const std::string& tenant, Account account) const {
  const uint64_t limit = LimitBytes(tenant, account);
  if (limit == kUnlimited) return kUnlimited;
  const uint64_t charged = ChargedBytes(tenant, account);
  return charged < limit ? limit - charged : 0;
}

bool Quota::TryCharge(const std::string& tenant, Account account, uint64_t bytes) {
  if (FreeBytes(tenant, account) < bytes) return false;
  if (bytes > 0) charges_[{tenant, account}] += bytes;
  return true;
}

void Quota::ChargeAgain(const std::string& tenant, Account account, uint64_t bytes) {
  if (bytes > 0) charges_[{tenant, account}] += bytes;
}

absl::Status Quota::Return(const std::string& tenant, Account account, uint64_t bytes) {
  const uint64_t charged = ChargedBytes(tenant, account);
  if (charged < bytes) {
    return absl::FailedPreconditionError(absl::StrCat("tenant ", tenant, " is charged ", charged,
                                                      " bytes of ", Name(account), "; ", bytes,
                                                      " cannot be returned"));
  }
  const auto found = charges_.find({tenant, account});
  if (found == charges_.end()) return absl::OkStatus();  // zero bytes, none charged
  found->second -= bytes;
  if (found->second == 0) charges_.erase(found);
  return absl::OkStatus();
}

}  // namespace geminid::core
