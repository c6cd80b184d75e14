// Computes how much may still be promised to a tenant: the free memory, less what others were
// guaranteed or promised and do not hold yet. The tenant's own limit bounds it too.
#ifndef GEMINID_DAEMON_CORE_ACCOUNTS_ROOM_H_
#define GEMINID_DAEMON_CORE_ACCOUNTS_ROOM_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "daemon/core/accounts/account.h"
#include "daemon/core/accounts/ledger.h"
#include "daemon/core/accounts/quota.h"

namespace geminid::core {

// Bytes of each tenant.
using TenantBytes = std::map<std::pair<std::string, Account>, uint64_t>;

// A what-if view of the ledger and the quotas. Both must outlive it and must not change meanwhile.
// Claims and frees are recorded in the view alone. Cost: the first question about an account is
// linear in the tenants with guarantees or claims; every other call is logarithmic in them. A copy
// is linear in the tenants with recorded claims or frees.
class Room {
 public:
  // `claims`: the bytes promised to each tenant and not handed out yet; null: none.
  Room(const Ledger& ledger, const Quota& quota, const TenantBytes* claims = nullptr)
      : ledger_(&ledger), quota_(&quota), claims_(claims) {}

  // Supposes that these bytes too are promised to the tenant, or no longer promised.
  void Claim(const std::string& tenant, Account account, uint64_t bytes);
  void Unclaim(const std::string& tenant, Account account, uint64_t bytes);
  // Supposes that the tenant gives back bytes that it holds, or does not give them back after all.
  void Free(const std::string& tenant, Account account, uint64_t bytes);
  void Unfree(const std::string& tenant, Account account, uint64_t bytes);

  // The bytes that the tenant may still take.
  uint64_t For(const std::string& tenant, Account account) const;
  // The two bounds of For: the bytes that other tenants leave, and those that its own limit leaves.
  uint64_t LeftByOthers(const std::string& tenant, Account account) const;
  uint64_t LeftOfLimit(const std::string& tenant, Account account) const;
  // The bytes that the tenant could take if no tenant held any. A larger request never fits.
  uint64_t MostFor(const std::string& tenant, Account account) const;

 private:
  // Supposed changes to the books of one tenant and account.
  struct Supposed {
    int64_t claimed = 0;
    uint64_t freed = 0;
  };
  uint64_t Charged(const std::string& tenant, Account account) const;
  uint64_t Claimed(const std::string& tenant, Account account) const;
  uint64_t Owed(const std::string& tenant, Account account) const;
  uint64_t OwedToAllTenants(Account account) const;
  const Supposed& At(const std::string& tenant, Account account) const;
  // Adds to the supposed changes, and updates the sums.
  void Suppose(const std::string& tenant, Account account, int64_t claimed, int64_t freed);

  const Ledger* ledger_;
  const Quota* quota_;
  const TenantBytes* claims_;
  std::map<std::pair<std::string, Account>, Supposed> supposed_;
  std::map<Account, uint64_t> freed_of_;
  mutable std::map<Account, uint64_t> owed_to_all_;  // of accounts that were asked about
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ACCOUNTS_ROOM_H_
