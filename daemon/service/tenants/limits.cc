#include "daemon/service/tenants/limits.h"

#include "absl/strings/str_cat.h"

namespace geminid::service {

config::TenantShares Limits::Get() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return shares_;
}

core::Rate Limits::RateOf(const config::ShareKey& key, double burst_seconds) const {
  const double per_second = Get(key);
  return {.per_second = per_second, .burst = per_second * burst_seconds};
}

void Limits::Set(const config::TenantShares& shares) {
  const std::lock_guard<std::mutex> lock(mutex_);
  shares_ = shares;
}

absl::Status Limits::Refuse(const config::ShareKey& key, const std::string& tenant,
                            const std::string& has, const std::string& advice) {
  Count(key.key, tenant);
  return absl::ResourceExhaustedError(absl::StrCat(tenant, " ", has, "; ", advice, ", or raise ",
                                                   key.key, " in the daemon's configuration"));
}

void Limits::Count(const std::string& limit, const std::string& tenant) {
  const std::lock_guard<std::mutex> lock(mutex_);
  refusals_.Count(limit, tenant);
}

std::vector<core::Refusals::Row> Limits::Refused() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return refusals_.Read();
}

}  // namespace geminid::service
