// Why a chunk is where it is, in sentences of which none contradicts another. Pure.
#ifndef GEMINID_DAEMON_CORE_ENGINE_EXPLANATION_H_
#define GEMINID_DAEMON_CORE_ENGINE_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/accounts/account.h"
#include "daemon/core/records/manifest.h"

namespace geminid::core {

// Where the chunk stands in the order of eviction.
struct EvictionPlace {
  uint64_t number = 1;  // from 1
  uint64_t of = 1;
  uint64_t before_bytes = 0;  // of those that leave earlier
  uint64_t largest_hole_bytes = 0;
  bool is_complete = true;  // false: the first two are at least that
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
  std::string why_not_evictable;     // half a sentence; empty: it may leave
  EvictionPlace place;               // where it may leave
};

std::vector<std::string> Explain(const ChunkFacts& facts);

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_EXPLANATION_H_
