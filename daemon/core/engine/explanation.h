// Explains in sentences why a chunk is where it is. No sentence contradicts another. Pure.
#ifndef GEMINID_DAEMON_CORE_ENGINE_EXPLANATION_H_
#define GEMINID_DAEMON_CORE_ENGINE_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/accounts/account.h"
#include "daemon/core/records/manifest.h"

namespace geminid::core {

// The chunk's position in the order of eviction.
struct EvictionPlace {
  uint64_t number = 1;  // from 1
  uint64_t of = 1;
  uint64_t before_bytes = 0;  // of the chunks that are evicted earlier
  uint64_t largest_hole_bytes = 0;
  bool is_complete = true;  // false: `number` and `of` are lower bounds
};

struct ChunkFacts {
  ChunkIdentity identity;
  ChunkStatus status;
  std::string name;
  std::string job;
  int32_t rank = 0;
  Account device;  // of its session
  TicketId ticket = kNoTicket;
  uint32_t other_transfers = 0;  // queued or under way, `ticket` not counted
  bool client_died = false;
  bool home_is_torn = false;         // it is being written, or was when the client died
  uint32_t plan_moments = 0;         // 0: no plan
  uint64_t moment = 0;               // within the plan
  std::optional<uint64_t> next_use;  // in moments; none: the plan does not use it
  std::string why_not_evictable;     // a clause; empty: it may be evicted
  EvictionPlace place;               // only of a chunk that may be evicted
};

std::vector<std::string> Explain(const ChunkFacts& facts);

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_EXPLANATION_H_
