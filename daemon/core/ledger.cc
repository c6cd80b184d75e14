#include "daemon/core/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::core {
namespace {

absl::Status Refused(const char* movement, Tier tier, uint64_t bytes, uint64_t there,
                     const char* where) {
  return absl::FailedPreconditionError(absl::StrCat("the ledger refuses to ", movement, " ", bytes,
                                                    " bytes of tier ", shm::Name(tier), ": ", there,
                                                    " are ", where));
}

absl::Status NoSuchTier() { return absl::InvalidArgumentError("the ledger has no such tier"); }

}  // namespace

Ledger::Ledger(uint64_t device_capacity_bytes, uint64_t host_capacity_bytes,
               uint64_t disk_capacity_bytes) {
  const uint64_t capacities[] = {device_capacity_bytes, host_capacity_bytes, disk_capacity_bytes};
  for (size_t i = 0; i < tiers_.size(); ++i) {
    tiers_[i].capacity_bytes = capacities[i];
    tiers_[i].free_bytes = capacities[i];
  }
}

TierTotals* Ledger::Find(Tier tier) {
  const auto index = static_cast<size_t>(tier);
  return index >= 1 && index <= tiers_.size() ? &tiers_[index - 1] : nullptr;
}

absl::Status Ledger::HandOut(Tier tier, uint64_t bytes) {
  TierTotals* totals = Find(tier);
  if (totals == nullptr) return NoSuchTier();
  if (totals->free_bytes < bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("tier ", shm::Name(tier), ": asked for ",
                                                     bytes, " bytes, ", totals->free_bytes, " of ",
                                                     totals->capacity_bytes, " are free"));
  }
  totals->free_bytes -= bytes;
  totals->reserved_bytes += bytes;
  return absl::OkStatus();
}

absl::Status Ledger::TakeBack(Tier tier, uint64_t bytes) {
  TierTotals* totals = Find(tier);
  if (totals == nullptr) return NoSuchTier();
  if (totals->reserved_bytes < bytes) {
    return Refused("take back", tier, bytes, totals->reserved_bytes, "reserved");
  }
  totals->reserved_bytes -= bytes;
  totals->free_bytes += bytes;
  return absl::OkStatus();
}

absl::Status Ledger::Occupy(Tier tier, SessionId session, ChunkKind kind, uint64_t bytes) {
  TierTotals* totals = Find(tier);
  if (totals == nullptr) return NoSuchTier();
  if (bytes == 0 || totals->reserved_bytes < bytes) {
    return Refused("occupy", tier, bytes, totals->reserved_bytes, "reserved");
  }
  totals->reserved_bytes -= bytes;
  totals->in_use_bytes += bytes;
  totals->peak_in_use_bytes = std::max(totals->peak_in_use_bytes, totals->in_use_bytes);
  Line& line = lines_[{tier, session, kind}];
  line.bytes += bytes;
  line.chunks += 1;
  return absl::OkStatus();
}

absl::Status Ledger::Vacate(Tier tier, SessionId session, ChunkKind kind, uint64_t bytes) {
  TierTotals* totals = Find(tier);
  if (totals == nullptr) return NoSuchTier();
  const auto found = lines_.find({tier, session, kind});
  const uint64_t there = found == lines_.end() ? 0 : found->second.bytes;
  // The last chunk of a line takes the last byte with it, and no other chunk does.
  if (bytes == 0 || there < bytes || (there == bytes) != (found->second.chunks == 1)) {
    return Refused("vacate", tier, bytes, there, "in use on that line");
  }
  totals->in_use_bytes -= bytes;
  totals->reserved_bytes += bytes;
  found->second.bytes -= bytes;
  found->second.chunks -= 1;
  if (found->second.chunks == 0) lines_.erase(found);
  return absl::OkStatus();
}

TierTotals Ledger::Totals(Tier tier) const {
  const TierTotals* totals = const_cast<Ledger*>(this)->Find(tier);
  return totals == nullptr ? TierTotals{} : *totals;
}

std::vector<LedgerLine> Ledger::Lines() const {
  std::vector<LedgerLine> lines;
  lines.reserve(lines_.size());
  for (const auto& [key, line] : lines_) {
    const auto& [tier, session, kind] = key;
    lines.push_back({tier, session, kind, line.bytes, line.chunks});
  }
  return lines;
}

uint64_t Ledger::InUseBytes(Tier tier, SessionId session) const {
  uint64_t bytes = 0;
  for (auto it = lines_.lower_bound({tier, session, ChunkKind::kNone}); it != lines_.end(); ++it) {
    if (std::get<Tier>(it->first) != tier || std::get<SessionId>(it->first) != session) break;
    bytes += it->second.bytes;
  }
  return bytes;
}

absl::Status Ledger::Check() const {
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const TierTotals totals = Totals(tier);
    const uint64_t sum = totals.in_use_bytes + totals.reserved_bytes + totals.free_bytes;
    if (sum != totals.capacity_bytes) {
      return absl::InternalError(absl::StrCat(
          "tier ", shm::Name(tier), ": in use ", totals.in_use_bytes, " + reserved ",
          totals.reserved_bytes, " + free ", totals.free_bytes, " is not ", totals.capacity_bytes));
    }
    uint64_t lines = 0;
    for (const auto& [key, line] : lines_) {
      if (std::get<Tier>(key) == tier) lines += line.bytes;
    }
    if (lines != totals.in_use_bytes) {
      return absl::InternalError(absl::StrCat("tier ", shm::Name(tier), ": the lines add up to ",
                                              lines, ", in use are ", totals.in_use_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::core
