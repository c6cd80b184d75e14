#include "daemon/core/accounts/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::core {
namespace {

absl::Status Refused(const char* movement, Account account, uint64_t bytes, uint64_t there,
                     const char* where) {
  return absl::FailedPreconditionError(absl::StrCat("the ledger refuses to ", movement, " ", bytes,
                                                    " bytes of ", Name(account), ": ", there,
                                                    " are ", where));
}

absl::Status NoSuchAccount() {
  return absl::InvalidArgumentError("the ledger has no such account");
}

}  // namespace

Ledger::Ledger(const std::vector<uint64_t>& device_capacities_bytes, uint64_t host_capacity_bytes) {
  const auto open = [this](Account account, uint64_t bytes) {
    accounts_[account] = {.capacity_bytes = bytes, .free_bytes = bytes};
  };
  for (size_t i = 0; i < device_capacities_bytes.size(); ++i) {
    open(DeviceAccount(DeviceIndex{static_cast<uint32_t>(i)}), device_capacities_bytes[i]);
  }
  open(kHostAccount, host_capacity_bytes);
  open(kDiskAccount, 0);
}

AccountTotals* Ledger::Find(Account account) {
  const auto found = accounts_.find(account);
  return found == accounts_.end() ? nullptr : &found->second;
}

absl::Status Ledger::HandOut(Account account, uint64_t bytes) {
  AccountTotals* totals = Find(account);
  if (totals == nullptr) return NoSuchAccount();
  if (account == kDiskAccount) {
    totals->capacity_bytes += bytes;
    totals->free_bytes += bytes;
  }
  if (totals->free_bytes < bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(Name(account), ": asked for ", bytes,
                                                     " bytes, ", totals->free_bytes, " of ",
                                                     totals->capacity_bytes, " are free"));
  }
  totals->free_bytes -= bytes;
  totals->reserved_bytes += bytes;
  return absl::OkStatus();
}

absl::Status Ledger::TakeBack(Account account, uint64_t bytes) {
  AccountTotals* totals = Find(account);
  if (totals == nullptr) return NoSuchAccount();
  if (totals->reserved_bytes < bytes) {
    return Refused("take back", account, bytes, totals->reserved_bytes, "reserved");
  }
  totals->reserved_bytes -= bytes;
  if (account == kDiskAccount) {
    totals->capacity_bytes -= bytes;
  } else {
    totals->free_bytes += bytes;
  }
  return absl::OkStatus();
}

absl::Status Ledger::Occupy(Account account, SessionId session, ChunkKind kind, uint64_t bytes) {
  AccountTotals* totals = Find(account);
  if (totals == nullptr) return NoSuchAccount();
  if (bytes == 0 || totals->reserved_bytes < bytes) {
    return Refused("occupy", account, bytes, totals->reserved_bytes, "reserved");
  }
  totals->reserved_bytes -= bytes;
  totals->in_use_bytes += bytes;
  totals->peak_in_use_bytes = std::max(totals->peak_in_use_bytes, totals->in_use_bytes);
  Line& line = lines_[{account, session, kind}];
  line.bytes += bytes;
  line.chunks += 1;
  return absl::OkStatus();
}

absl::Status Ledger::Vacate(Account account, SessionId session, ChunkKind kind, uint64_t bytes) {
  AccountTotals* totals = Find(account);
  if (totals == nullptr) return NoSuchAccount();
  const auto found = lines_.find({account, session, kind});
  const uint64_t there = found == lines_.end() ? 0 : found->second.bytes;
  // Exactly the last chunk of a line takes its last byte.
  if (bytes == 0 || there < bytes || (there == bytes) != (found->second.chunks == 1)) {
    return Refused("vacate", account, bytes, there, "in use on that line");
  }
  totals->in_use_bytes -= bytes;
  totals->reserved_bytes += bytes;
  found->second.bytes -= bytes;
  found->second.chunks -= 1;
  if (found->second.chunks == 0) lines_.erase(found);
  return absl::OkStatus();
}

std::vector<Account> Ledger::Accounts() const {
  std::vector<Account> accounts;
  for (const auto& [account, totals] : accounts_) accounts.push_back(account);
  return accounts;
}

AccountTotals Ledger::Totals(Account account) const {
  const AccountTotals* totals = const_cast<Ledger*>(this)->Find(account);
  return totals == nullptr ? AccountTotals{} : *totals;
}

std::vector<LedgerLine> Ledger::Lines() const {
  std::vector<LedgerLine> lines;
  lines.reserve(lines_.size());
  for (const auto& [key, line] : lines_) {
    const auto& [account, session, kind] = key;
    lines.push_back({account, session, kind, line.bytes, line.chunks});
  }
  return lines;
}

uint64_t Ledger::InUseBytes(Account account, SessionId session) const {
  uint64_t bytes = 0;
  for (auto it = lines_.lower_bound({account, session, ChunkKind::kNone}); it != lines_.end();
       ++it) {
    if (std::get<Account>(it->first) != account || std::get<SessionId>(it->first) != session) break;
    bytes += it->second.bytes;
  }
  return bytes;
}

absl::Status Ledger::Check() const {
  for (const auto& [account, totals] : accounts_) {
    const uint64_t sum = totals.in_use_bytes + totals.reserved_bytes + totals.free_bytes;
    if (sum != totals.capacity_bytes) {
      return absl::InternalError(absl::StrCat(
          Name(account), ": in use ", totals.in_use_bytes, " + reserved ", totals.reserved_bytes,
          " + free ", totals.free_bytes, " is not ", totals.capacity_bytes));
    }
    uint64_t lines = 0;
    for (const auto& [key, line] : lines_) {
      if (std::get<Account>(key) == account) lines += line.bytes;
    }
    if (lines != totals.in_use_bytes) {
      return absl::InternalError(absl::StrCat(Name(account), ": the lines add up to ", lines,
                                              ", in use are ", totals.in_use_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::core
