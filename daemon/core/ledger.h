// The ledger: every byte of every tier is in use, reserved or free, and the three add up.
//
//   free --HandOut--> reserved --Occupy--> in_use
//        <--TakeBack--         <--Vacate--
//
// free: not handed out. reserved: handed out as part of a pool or an arena, no chunk in it
// (padding, workspace, holes). in_use: chunks. A movement that would break the sum, or make a line
// negative, is refused and changes nothing.
#ifndef GEMINID_DAEMON_CORE_LEDGER_H_
#define GEMINID_DAEMON_CORE_LEDGER_H_

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "daemon/core/ids.h"

namespace geminid::core {

struct TierTotals {
  uint64_t capacity_bytes = 0;
  uint64_t in_use_bytes = 0;
  uint64_t reserved_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t peak_in_use_bytes = 0;
};

struct LedgerLine {
  Tier tier = Tier::kNone;
  SessionId session{};
  ChunkKind kind = ChunkKind::kNone;
  uint64_t bytes = 0;
  uint64_t chunks = 0;
};

// Not thread-safe. Cost: logarithmic in the number of lines.
class Ledger {
 public:
  Ledger(uint64_t device_capacity_bytes, uint64_t host_capacity_bytes,
         uint64_t disk_capacity_bytes);

  // RESOURCE_EXHAUSTED when fewer bytes are free; FAILED_PRECONDITION for the other refusals.
  absl::Status HandOut(Tier tier, uint64_t bytes);
  absl::Status TakeBack(Tier tier, uint64_t bytes);
  absl::Status Occupy(Tier tier, SessionId session, ChunkKind kind, uint64_t bytes);
  absl::Status Vacate(Tier tier, SessionId session, ChunkKind kind, uint64_t bytes);

  // Zeros for Tier::kNone.
  TierTotals Totals(Tier tier) const;
  // Ordered by tier, session, kind; no line of zero chunks.
  std::vector<LedgerLine> Lines() const;
  uint64_t InUseBytes(Tier tier, SessionId session) const;

  // For each tier: in_use + reserved + free = capacity, and the lines add up to in_use.
  absl::Status Check() const;

 private:
  using LineKey = std::tuple<Tier, SessionId, ChunkKind>;
  struct Line {
    uint64_t bytes = 0;
    uint64_t chunks = 0;
  };
  TierTotals* Find(Tier tier);  // null: no such tier

  std::array<TierTotals, 3> tiers_;  // device, host, disk
  std::map<LineKey, Line> lines_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_LEDGER_H_
