// A client's description of itself when it attaches. A session is one attached client process: one
// rank of one training job.
#ifndef GEMINID_DAEMON_CORE_RECORDS_SESSION_SPEC_H_
#define GEMINID_DAEMON_CORE_RECORDS_SESSION_SPEC_H_

#include <cstdint>
#include <string>

#include "daemon/core/basics/ids.h"
#include "proto/shm/attach_messages.h"

namespace geminid::core {

struct SessionSpec {
  std::string tenant;  // who is charged: the peer's user, or its container
  std::string job;
  std::string run{};  // distinguishes two runs of a job; empty: nobody can resume its session
  std::string client;
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t local_rank = 0;
  int32_t local_world_size = 0;          // ranks of the job on this node; 0: unknown
  DeviceIndex device = shm::kAnyDevice;  // the one asked for
  uint32_t uid = 0;
  int64_t pid = 0;
  uint32_t weight = 1;  // its share of the tenant's part of a link, beside the tenant's others
  shm::DeathPolicy death_policy = shm::DeathPolicy::kFree;
};

// Whether both are the same rank of one run: their processes use one session, one after the other.
inline bool IsSameRank(const SessionSpec& a, const SessionSpec& b) {
  return a.tenant == b.tenant && a.job == b.job && a.run == b.run && a.rank == b.rank &&
         a.world_size == b.world_size;
}

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_RECORDS_SESSION_SPEC_H_
