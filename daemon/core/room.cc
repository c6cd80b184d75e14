#include "daemon/core/room.h"

#include <algorithm>
#include <set>

#include "daemon/core/less.h"

namespace geminid::core {
void Room::Claim(const std::string& tenant, Account account, uint64_t bytes) {
  if (bytes > 0) claimed_[{tenant, account}] += bytes;
}

void Room::Free(const std::string& tenant, Account account, uint64_t bytes) {
  if (bytes == 0) return;
  freed_[{tenant, account}] += bytes;
  freed_of_[account] += bytes;
}

uint64_t Room::At(const std::map<Key, uint64_t>& bytes, const std::string& tenant,
                  Account account) {
  const auto found = bytes.find({tenant, account});
  return found == bytes.end() ? 0 : found->second;
}

uint64_t Room::Charged(const std::string& tenant, Account account) const {
  return Less(quota_->ChargedBytes(tenant, account), At(freed_, tenant, account));
}

// What was promised to its jobs is part of what was guaranteed to a tenant, not beside it.
uint64_t Room::Owed(const std::string& tenant, Account account) const {
  const uint64_t guaranteed =
      Less(quota_->GuaranteedBytes(tenant, account), Charged(tenant, account));
  return std::max(guaranteed, At(claimed_, tenant, account));
}

uint64_t Room::OwedToOthers(const std::string& tenant, Account account) const {
  std::set<std::string> others = quota_->GuaranteedTenants();
  for (const auto& [key, bytes] : claimed_) {
    if (key.second == account) others.insert(key.first);
  }
  others.erase(tenant);
  uint64_t owed = 0;
  for (const std::string& other : others) owed += Owed(other, account);
  return owed;
}

uint64_t Room::LeftByOthers(const std::string& tenant, Account account) const {
  const auto freed = freed_of_.find(account);
  const uint64_t free_bytes =
      ledger_->Totals(account).free_bytes + (freed == freed_of_.end() ? 0 : freed->second);
  return Less(free_bytes, OwedToOthers(tenant, account) + At(claimed_, tenant, account));
}

uint64_t Room::LeftOfLimit(const std::string& tenant, Account account) const {
  const uint64_t limit = quota_->LimitBytes(tenant, account);
  if (limit == kUnlimited) return kUnlimited;
  return Less(limit, Charged(tenant, account) + At(claimed_, tenant, account));
}

uint64_t Room::For(const std::string& tenant, Account account) const {
  return std::min(LeftByOthers(tenant, account), LeftOfLimit(tenant, account));
}

uint64_t Room::MostFor(const std::string& tenant, Account account) const {
  uint64_t guaranteed = 0;
  for (const std::string& other : quota_->GuaranteedTenants()) {
    if (other != tenant) guaranteed += quota_->GuaranteedBytes(other, account);
  }
  return std::min(Less(ledger_->Totals(account).capacity_bytes, guaranteed),
                  quota_->LimitBytes(tenant, account));
}

}  // namespace geminid::core
