#include "daemon/core/quota.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::core {

absl::Status ToStatus(const Refusal& refusal) {
  std::string text = absl::StrCat(
      shm::Name(refusal.tier), " memory: asked for ", base::FormatBytes(refusal.asked_bytes), " (",
      refusal.asked_bytes, " bytes), free ", base::FormatBytes(refusal.free_bytes),
      ", largest hole ", base::FormatBytes(refusal.largest_hole_bytes), "; ", refusal.limit);
  if (refusal.top_holder.job.empty()) {
    absl::StrAppend(&text, "; nobody holds any");
  } else {
    absl::StrAppend(&text, "; most is held by job ", refusal.top_holder.job, " rank ",
                    refusal.top_holder.rank, " (", base::FormatBytes(refusal.top_holder.bytes),
                    ")");
  }
  return absl::ResourceExhaustedError(absl::StrCat(text, "; ", refusal.advice));
}

Quota::Quota(const std::vector<TenantLimits>& limits) {
  for (const TenantLimits& line : limits) limits_[line.tenant] = line;
}

uint64_t Quota::LimitBytes(const std::string& tenant, Tier tier) const {
  auto found = limits_.find(tenant);
  if (found == limits_.end()) found = limits_.find(kEveryoneElse);
  if (found == limits_.end()) return kUnlimited;
  return tier == Tier::kHost ? found->second.host_bytes : found->second.device_bytes;
}

uint64_t Quota::ChargedBytes(const std::string& tenant, Tier tier) const {
  const auto found = charges_.find(tenant);
  return found == charges_.end() ? 0 : found->second.Of(tier);
}

uint64_t Quota::FreeBytes(const std::string& tenant, Tier tier) const {
  const uint64_t limit = LimitBytes(tenant, tier);
  if (limit == kUnlimited) return kUnlimited;
  const uint64_t charged = ChargedBytes(tenant, tier);
  return charged < limit ? limit - charged : 0;
}

bool Quota::TryCharge(const std::string& tenant, Tier tier, uint64_t bytes) {
  if (FreeBytes(tenant, tier) < bytes) return false;
  charges_[tenant].Of(tier) += bytes;
  return true;
}

absl::Status Quota::Return(const std::string& tenant, Tier tier, uint64_t bytes) {
  const uint64_t charged = ChargedBytes(tenant, tier);
  if (charged < bytes) {
    return absl::FailedPreconditionError(absl::StrCat("tenant ", tenant, " is charged ", charged,
                                                      " bytes of tier ", shm::Name(tier), "; ",
                                                      bytes, " cannot be returned"));
  }
  const auto found = charges_.find(tenant);
  if (found == charges_.end()) return absl::OkStatus();  // zero bytes of nobody
  found->second.Of(tier) -= bytes;
  if (found->second.host_bytes == 0 && found->second.device_bytes == 0) charges_.erase(found);
  return absl::OkStatus();
}

}  // namespace geminid::core
