// The ledger: every byte of the host, the disk and each device is in use, reserved or free, and the
// three add up to the capacity.
//
//   free --HandOut--> reserved --Occupy--> in_use
//        <--TakeBack--         <--Vacate--
//
// free: not handed out. reserved: handed out in a pool or an arena, but no chunk occupies it
// (padding, workspace, holes). in_use: occupied by chunks. The ledger refuses a movement that would
// break the sum or make a line negative, and then changes nothing.
//
// The disk has no capacity of its own, since files lie in folders that the users choose. All that
// is handed out there is its capacity, and nothing is free.
#ifndef GEMINID_DAEMON_CORE_ACCOUNTS_LEDGER_H_
#define GEMINID_DAEMON_CORE_ACCOUNTS_LEDGER_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "daemon/core/accounts/account.h"

namespace geminid::core {

struct AccountTotals {
  uint64_t capacity_bytes = 0;
  uint64_t in_use_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t peak_in_use_bytes = 0;
};

struct LedgerLine {
  Account account;
  SessionId session{};
  ChunkKind kind = ChunkKind::kNone;
  uint64_t bytes = 0;
  uint64_t chunks = 0;
};

// Not thread-safe. Cost: logarithmic in the number of lines.
class Ledger {
 public:
  Ledger(const std::vector<uint64_t>& device_capacities_bytes, uint64_t host_capacity_bytes);

  // RESOURCE_EXHAUSTED: fewer bytes are free. INVALID_ARGUMENT: there is no such account.
  // FAILED_PRECONDITION: every other refusal.
  absl::Status HandOut(Account account, uint64_t bytes);
  absl::Status TakeBack(Account account, uint64_t bytes);
  absl::Status Occupy(Account account, SessionId session, ChunkKind kind, uint64_t bytes);
  absl::Status Vacate(Account account, SessionId session, ChunkKind kind, uint64_t bytes);

  // The devices in order, then the host, then the disk.
  std::vector<Account> Accounts() const;
  // All zeros if there is no such account.
  AccountTotals Totals(Account account) const;
  // Ordered by account, session, kind; no line of zero chunks.
  std::vector<LedgerLine> Lines() const;
  uint64_t InUseBytes(Account account, SessionId session) const;

  // OK if, for each account, in_use + reserved + free = capacity and the lines add up to in_use.
  absl::Status Check() const;

 private:
  using LineKey = std::tuple<Account, SessionId, ChunkKind>;
  struct Line {
    uint64_t bytes = 0;
    uint64_t chunks = 0;
  };
  AccountTotals* Find(Account account);  // null: no such account

  std::map<Account, AccountTotals> accounts_;
  std::map<LineKey, Line> lines_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ACCOUNTS_LEDGER_H_
