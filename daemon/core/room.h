// What may still be promised to a tenant: free memory, less what others were guaranteed or promised
// and do not hold yet, within the tenant's own limit.
#ifndef GEMINID_DAEMON_CORE_ROOM_H_
#define GEMINID_DAEMON_CORE_ROOM_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "daemon/core/account.h"
#include "daemon/core/ledger.h"
#include "daemon/core/quota.h"

namespace geminid::core {

// A sketch over the books, which must outlive it and not change meanwhile: claims and frees are
// only supposed. Cost: linear in the tenants with guarantees or claims.
class Room {
 public:
  Room(const Ledger& ledger, const Quota& quota) : ledger_(&ledger), quota_(&quota) {}

  // Promised to the tenant, and not handed out yet.
  void Claim(const std::string& tenant, Account account, uint64_t bytes);
  // What the tenant holds and gives back.
  void Free(const std::string& tenant, Account account, uint64_t bytes);

  // What the tenant may still take.
  uint64_t For(const std::string& tenant, Account account) const;
  // The lesser of these two: what others leave it, and what its own limit does.
  uint64_t LeftByOthers(const std::string& tenant, Account account) const;
  uint64_t LeftOfLimit(const std::string& tenant, Account account) const;
  // What the tenant could take if nobody held anything: more never fits.
  uint64_t MostFor(const std::string& tenant, Account account) const;

 private:
  using Key = std::pair<std::string, Account>;
  uint64_t Charged(const std::string& tenant, Account account) const;
  uint64_t Owed(const std::string& tenant, Account account) const;
  // To all but `tenant`.
  uint64_t OwedToOthers(const std::string& tenant, Account account) const;
  static uint64_t At(const std::map<Key, uint64_t>& bytes, const std::string& tenant,
                     Account account);

  const Ledger* ledger_;
  const Quota* quota_;
  std::map<Key, uint64_t> claimed_;
  std::map<Key, uint64_t> freed_;
  std::map<Account, uint64_t> freed_of_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ROOM_H_
