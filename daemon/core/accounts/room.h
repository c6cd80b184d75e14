// What may still be promised to a tenant: free memory, less what others were guaranteed or promised
// and do not hold yet, within the tenant's own limit.
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

// A sketch over the books, which must outlive it and not change meanwhile: claims and frees are
// only supposed. Cost: the first question about an account is linear in the tenants with guarantees
// or claims, all else logarithmic in them; a copy is linear in the tenants that it supposes
// something of.
class Room {
 public:
  // `claims`: promised to each tenant, and not handed out yet; null: nothing.
  Room(const Ledger& ledger, const Quota& quota, const TenantBytes* claims = nullptr)
      : ledger_(&ledger), quota_(&quota), claims_(claims) {}

  // Promised to the tenant besides, or no longer.
  void Claim(const std::string& tenant, Account account, uint64_t bytes);
  void Unclaim(const std::string& tenant, Account account, uint64_t bytes);
  // What the tenant holds and gives back, or keeps after all.
  void Free(const std::string& tenant, Account account, uint64_t bytes);
  void Unfree(const std::string& tenant, Account account, uint64_t bytes);

  // What the tenant may still take.
  uint64_t For(const std::string& tenant, Account account) const;
  // The lesser of these two: what others leave it, and what its own limit does.
  uint64_t LeftByOthers(const std::string& tenant, Account account) const;
  uint64_t LeftOfLimit(const std::string& tenant, Account account) const;
  // What the tenant could take if nobody held anything: more never fits.
  uint64_t MostFor(const std::string& tenant, Account account) const;

 private:
  // What is supposed of a tenant and an account, beyond the books.
  struct Supposed {
    int64_t claimed = 0;
    uint64_t freed = 0;
  };
  uint64_t Charged(const std::string& tenant, Account account) const;
  uint64_t Claimed(const std::string& tenant, Account account) const;
  uint64_t Owed(const std::string& tenant, Account account) const;
  uint64_t OwedToAll(Account account) const;
  const Supposed& At(const std::string& tenant, Account account) const;
  // Adds to what is supposed, and keeps the sums.
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
