// The engine's private state: for its own source files alone.
//
// The manifest holds each chunk's identity and location. The state here can be recomputed, or dies
// with the process.
#ifndef GEMINID_DAEMON_CORE_ENGINE_ENGINE_STATE_H_
#define GEMINID_DAEMON_CORE_ENGINE_ENGINE_STATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "daemon/core/chunks/covered_ranges.h"
#include "daemon/core/chunks/eviction_order.h"
#include "daemon/core/engine/engine.h"

namespace geminid::core {

// The most chunks that one request may look at before it is refused. Otherwise a session that
// leases all its chunks would make the other sessions wait.
inline constexpr size_t kMostLookedAt = 4096;

// As `keep_until`: the session's memory is being freed, and nobody can take the session over.
inline constexpr Time kEndedTime = Time::FromNanoseconds(1);

absl::Status NoSuchSession(SessionId session);

// Why a request failed: a status for the log and for the response, and the wire's reason.
struct Engine::Failure {
  absl::Status status;
  shm::ErrorReason reason = shm::ErrorReason::kNone;

  bool ok() const { return status.ok(); }
  static Failure None() { return {}; }
};

struct Engine::Chunk {
  ChunkId id{};
  std::string name;
  RecordIndex record{};
  ChunkKind kind = ChunkKind::kNone;
  uint64_t bytes = 0;
  PoolId pool = kNoPool;
  uint64_t home_offset = 0;

  // `pins` transfers, queued or in flight, touch the device copy; `inbound` of them write it.
  // `home_uses` touch the home. `tickets_into` tickets write either; `home_writes` write the home.
  uint32_t pins = 0;
  uint32_t inbound = 0;
  uint32_t home_uses = 0;
  uint32_t tickets_into = 0;
  uint32_t home_writes = 0;
  // The client died while it changed the only valid copy. The home's content is unknown until all
  // of it is written, or until the next client loads it all the same.
  bool home_lost = false;  // this and the next two are in the manifest, too
  // A finished transfer asked for this; it is due when the last other transfer is done.
  bool publish_when_idle = false;
  bool drop_when_idle = false;
  // Counts how often the chunk became dirty: a write-back saves the content of one such epoch.
  uint64_t dirty_epoch = 0;
  CoveredRanges written_back;
  uint64_t touched = 0;                        // order of last use, as far as requests show it
  std::optional<EvictionOrder::Entry> eviction_entry;  // its place in Session::eviction_order

  bool has_home() const { return pool != kNoPool; }
  bool is_on_disk() const { return kind == ChunkKind::kOnDisk; }
};

struct Engine::Pool {
  uint64_t bytes = 0;
  uint64_t in_use_bytes = 0;
  uint64_t chunks = 0;
  bool arriving = false;  // some of its chunks are not entered yet
};

struct Engine::Session {
  SessionId id{};
  SessionSpec spec;
  DeviceIndex device{};
  std::optional<SessionBooks> books;  // none: the session dies with this process
  // An earlier daemon may have carried out the next request (in_doubt) or the current one (again).
  bool in_doubt = false;
  bool again = false;
  SessionState state = SessionState::kAttached;
  Time opened_at;
  Time keep_until;
  std::optional<size_t> closed_chunks;  // closed so far, in order of number; none: not being closed
  bool asked_for_admission = false;
  bool barred = false;  // it attached while the daemon was drained
  bool held = false;    // the operator held its job when its client died, and has not let it go
  bool leaves_device = false;  // its job was asked for its device memory when its client died

  std::vector<std::unique_ptr<Chunk>> chunks;  // by number; null: the number is free
  // By number. Outlives the chunk, so that a lease on an old chunk never holds a new one.
  std::vector<uint32_t> generations;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free_numbers;
  uint64_t chunk_count = 0;
  uint64_t promised_chunks = 0;

  std::map<PoolId, Pool> pools;
  uint64_t pool_bytes = 0;  // of all pools
  uint64_t disk_bytes = 0;  // of all chunks of kind kOnDisk
  bool arena_promised = false;
  std::optional<ExtentAllocator> arena;
  uint64_t moment = 0;
  uint64_t touch_clock = 0;
  uint32_t plan_moments = 0;  // 0: no plan
  std::map<ChunkId, std::vector<uint32_t>> plan_uses;
  bool placed_by_plan = true;    // false: some eviction entries still follow an older plan
  EvictionOrder eviction_order;  // chunks that may be evicted, leases aside
  uint64_t evictions = 0;
  uint64_t evictions_refused_by_lease = 0;

  bool is_ending() const { return state == SessionState::kKept && keep_until == kEndedTime; }
  // The moment within the plan's iteration; 0 without a plan.
  uint32_t plan_moment() const {
    return plan_moments == 0 ? 0 : static_cast<uint32_t>(moment % plan_moments);
  }
  // Moments until that use; kNever for kNever.
  uint32_t Until(uint32_t use) const {
    if (use == EvictionOrder::kNever) return use;
    return use >= plan_moment() ? use - plan_moment() : use + plan_moments - plan_moment();
  }
  Chunk* Find(ChunkId chunk) const {
    const uint32_t number = shm::Index(chunk);
    return number < chunks.size() ? chunks[number].get() : nullptr;
  }
  uint64_t arena_bytes() const { return arena.has_value() ? arena->size_bytes() : 0; }
  Account device_account() const { return DeviceAccount(device); }
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_ENGINE_STATE_H_
