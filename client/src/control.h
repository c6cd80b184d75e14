// Calls to the daemon over gRPC, in the library's own types.
#ifndef GEMINID_CLIENT_SRC_CONTROL_H_
#define GEMINID_CLIENT_SRC_CONTROL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/plan.h"
#include "geminid/session.h"
#include "proto/shm/attach_messages.h"

namespace geminid {

// Thread-safe; calls block. If there is no daemon, or the daemon ends during a call, the call waits
// for the next one and is repeated; daemons execute a repeated call once. At the timeout, or when
// the descriptor store (systemd's or geminid-holder) gives the session up, it returns UNAVAILABLE
// with the time waited. An UNAVAILABLE that is not the daemon's own answer is retried once.
class Control {
 public:
  struct Allocation {
    std::vector<ChunkId> chunks;
    std::vector<uint64_t> pool_offsets;
    shm::PoolId pool{};
    uint64_t pool_bytes = 0;  // 0: there is no pool
  };

  // `local_ranks`: ranks of the job on this node. `attach_socket` is the session's, and outlives
  // this object. When its peer closes, neither a daemon nor the descriptor store has the session.
  Control(const std::string& socket, const shm::Welcome& welcome, absl::Duration timeout,
          int local_ranks, int attach_socket);
  ~Control();

  // Connects, before the first call. If other connections crowd this one out of the socket's queue,
  // it retries until the timeout; a call would fail instead.
  absl::Status Connect();

  // The number of slabs, and the bytes rounded up to whole pages.
  struct Arena {
    uint64_t bytes = 0;
    uint32_t slabs = 0;
  };
  // `may_be_there`: the arena of an earlier process of this rank is accepted, whatever its size.
  absl::StatusOr<Arena> CreateArena(uint64_t bytes, bool may_be_there);
  // Undoes CreateArena. Nothing may lie in the arena.
  absl::Status ReleaseArena();

  // Bytes of host memory; see SessionService.GetHostShare.
  absl::StatusOr<uint64_t> HostShare();

  // The job's admission state. The first Admit requests admission. `ranks`: those on this node.
  struct AdmissionStatus {
    bool admitted = false;
    std::string state;
    uint32_t position = 0;
    std::string reason;
  };
  absl::StatusOr<AdmissionStatus> Admit(const Admission& admission, uint32_t ranks,
                                        uint64_t device_bytes);

  // `claim`: takes over an allocation of an earlier process; NOT_FOUND if there is none.
  absl::StatusOr<Allocation> Allocate(const std::vector<ChunkSpec>& specs, bool claim);
  // Frees the allocations of an earlier process that were not claimed.
  absl::Status FreeOlder();
  absl::Status Free(std::span<const ChunkId> chunks);
  absl::StatusOr<Plan> MakePlan(const Trace& trace, const PlanRequest& request);
  absl::StatusOr<MemoryUse> GetMemoryUse(uint64_t session);
  // `insists`: without a daemon waits for the next one, like other calls, but at most 10 s.
  // Otherwise fails at once.
  absl::Status Detach(bool insists);

  // No call was ever answered, and the session is lost: its socket closed, or a daemon denied it.
  bool never_known() const { return unknown_.load() && !known_.load(); }

 private:
  struct Stubs;
  template <typename Make>
  // `patience`: limit of the wait for the next daemon, besides the connection's timeout.
  absl::Status MakeCall(const char* doing, absl::Duration timeout, Make make,
                        absl::Duration patience = absl::InfiniteDuration());
  bool WaitForSuccessor(absl::Time give_up) const;
  // Whether the session's socket is closed, or closes within that time.
  bool IsHungUp(int within_ms = 0) const;
  // The time limit of a call that allocates while the node's other ranks do the same.
  absl::Duration TimeToPopulate(uint64_t bytes) const;

  const std::string socket_;
  const absl::Duration timeout_;
  const int local_ranks_;
  const std::string token_;
  const int attach_socket_;
  const bool on_gpu_;
  const uint64_t first_allocation_;
  std::atomic<uint64_t> allocations_;
  std::atomic<bool> known_ = false;
  std::atomic<bool> unknown_ = false;
  std::unique_ptr<Stubs> stubs_;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_CONTROL_H_
