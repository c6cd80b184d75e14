// Copies of sessions, chunks and pools at one moment, for listings and metrics.
#ifndef GEMINID_DAEMON_CORE_ENGINE_SNAPSHOTS_H_
#define GEMINID_DAEMON_CORE_ENGINE_SNAPSHOTS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/core/accounts/account.h"
#include "daemon/core/basics/ids.h"
#include "daemon/core/basics/time.h"
#include "daemon/core/records/manifest.h"
#include "daemon/core/records/session_spec.h"
#include "daemon/core/transfers/transfer_scheduler.h"

namespace geminid::core {

enum class SessionState { kAttached, kKept };
const char* Name(SessionState state);

struct SessionSnapshot {
  SessionId id{};
  SessionSpec spec;
  DeviceIndex device{};  // the one it was given
  SessionState state = SessionState::kAttached;
  bool slow = false;  // a ticket is overdue
  Time opened_at;
  std::optional<Time> keep_until{};  // kKept only
  uint64_t host_bytes = 0;           // its pools
  uint64_t arena_bytes = 0;
  uint64_t device_in_use_bytes = 0;  // chunks in the arena
  uint64_t workspace_bytes = 0;
  uint64_t largest_hole_bytes = 0;  // in the arena
  double fragmentation = 0;         // of the arena
  uint64_t chunks = 0;
  uint64_t moment = 0;
  bool has_plan = false;
  uint64_t evictions = 0;
  uint64_t evictions_refused_by_lease = 0;
  uint64_t queued_transfers = 0;
  std::array<InFlight, kDirections> in_flight{};
  TransferTotals transfers;
};

struct ChunkSnapshot {
  ChunkIdentity identity;
  std::string name;
  ChunkStatus status;
  bool leased = false;
  uint32_t pins = 0;  // transfers, queued or in flight, that touch its device copy
  uint32_t loads = 0;
  uint32_t drops = 0;
};

// A position in the order of listings.
struct ChunkPlace {
  SessionId session{};
  ChunkId chunk{};
};

struct PoolPlace {
  SessionId session{};
  PoolId pool = kNoPool;
};

// A device arena is listed as a pool of its device, with pool id kNoPool.
struct PoolSnapshot {
  PoolId pool = kNoPool;
  SessionId session{};
  std::string tenant;
  Account account;
  uint64_t bytes = 0;
  uint64_t in_use_bytes = 0;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_SNAPSHOTS_H_
