#include "daemon/core/accounts/room.h"

#include <algorithm>
#include <set>

#include "daemon/core/basics/less.h"

namespace geminid::core {
void Room::Suppose(const std::string& tenant, Account account, int64_t claimed, int64_t freed) {
  const auto sum = owed_to_all_.find(account);
  const uint64_t before = sum == owed_to_all_.end() ? 0 : Owed(tenant, account);
  Supposed& supposed = supposed_[{tenant, account}];
  supposed.claimed += claimed;
  supposed.freed += static_cast<uint64_t>(freed);
  if (freed != 0) freed_of_[account] += static_cast<uint64_t>(freed);
  if (sum != owed_to_all_.end()) sum->second += Owed(tenant, account) - before;
}

void Room::Claim(const std::string& tenant, Account account, uint64_t bytes) {
  if (bytes > 0) Suppose(tenant, account, static_cast<int64_t>(bytes), 0);
}

void Room::Unclaim(const std::string& tenant, Account account, uint64_t bytes) {
  if (bytes > 0) Suppose(tenant, account, -static_cast<int64_t>(bytes), 0);
}

void Room::Free(const std::string& tenant, Account account, uint64_t bytes) {
  if (bytes > 0) Suppose(tenant, account, 0, static_cast<int64_t>(bytes));
}

void Room::Unfree(const std::string& tenant, Account account, uint64_t bytes) {
  if (bytes > 0) Suppose(tenant, account, 0, -static_cast<int64_t>(bytes));
}

const Room::Supposed& Room::At(const std::string& tenant, Account account) const {
  static constexpr Supposed kNothing;
  const auto found = supposed_.find({tenant, account});
  return found == supposed_.end() ? kNothing : found->second;
}

uint64_t Room::Charged(const std::string& tenant, Account account) const {
  return Less(quota_->ChargedBytes(tenant, account), At(tenant, account).freed);
}

uint64_t Room::Claimed(const std::string& tenant, Account account) const {
  uint64_t claimed = static_cast<uint64_t>(At(tenant, account).claimed);
  if (claims_ == nullptr) return claimed;
  const auto found = claims_->find({tenant, account});
  return claimed + (found == claims_->end() ? 0 : found->second);
}

// A tenant's guarantee includes the promises to its jobs; the two are not added.
uint64_t Room::Owed(const std::string& tenant, Account account) const {
  const uint64_t guaranteed =
      Less(quota_->GuaranteedBytes(tenant, account), Charged(tenant, account));
  return std::max(guaranteed, Claimed(tenant, account));
}

uint64_t Room::OwedToAllTenants(Account account) const {
  const auto known = owed_to_all_.find(account);
  if (known != owed_to_all_.end()) return known->second;
  std::set<std::string> tenants = quota_->GuaranteedTenants();
  const auto add = [&](const auto& of_tenants) {
    for (const auto& [key, of_tenant] : of_tenants) {
      if (key.second == account) tenants.insert(key.first);
    }
  };
  add(supposed_);
  if (claims_ != nullptr) add(*claims_);
  uint64_t owed = 0;
  for (const std::string& tenant : tenants) owed += Owed(tenant, account);
  return owed_to_all_[account] = owed;
}

uint64_t Room::LeftByOthers(const std::string& tenant, Account account) const {
  if (account == kDiskAccount) return kUnlimited;
  const auto freed = freed_of_.find(account);
  const uint64_t free_bytes =
      ledger_->Totals(account).free_bytes + (freed == freed_of_.end() ? 0 : freed->second);
  const uint64_t owed_to_others = OwedToAllTenants(account) - Owed(tenant, account);
  return Less(free_bytes, owed_to_others + Claimed(tenant, account));
}

uint64_t Room::LeftOfLimit(const std::string& tenant, Account account) const {
  const uint64_t limit = quota_->LimitBytes(tenant, account);
  if (limit == kUnlimited) return kUnlimited;
  return Less(limit, Charged(tenant, account) + Claimed(tenant, account));
}

uint64_t Room::For(const std::string& tenant, Account account) const {
  return std::min(LeftByOthers(tenant, account), LeftOfLimit(tenant, account));
}

uint64_t Room::MostFor(const std::string& tenant, Account account) const {
  if (account == kDiskAccount) return quota_->LimitBytes(tenant, account);
  uint64_t guaranteed = 0;
  for (const std::string& other : quota_->GuaranteedTenants()) {
    if (other != tenant) guaranteed += quota_->GuaranteedBytes(other, account);
  }
  return std::min(Less(ledger_->Totals(account).capacity_bytes, guaranteed),
                  quota_->LimitBytes(tenant, account));
}

}  // namespace geminid::core
