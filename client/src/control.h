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

// Thread-safe; calls block. A call that finds no daemon, or whose daemon ends meanwhile, waits for
// one, up to the timeout and as long as somebody keeps the session for it, and is made again: once
// its daemon had done it or not, it is done once. UNAVAILABLE when none comes, with how long that
// was waited for. One that the daemon does not mark as its own is asked once more.
class Control {
 public:
  struct Allocation {
    std::vector<ChunkId> chunks;
    std::vector<uint64_t> pool_offsets;
    shm::PoolId pool{};
    uint64_t pool_bytes = 0;  // 0: there is no pool
  };

  // `local_ranks`: of the job on this node. `attach_socket`, which outlives this, is the session's:
  // its end says that nobody keeps it.
  Control(const std::string& socket, const shm::Welcome& welcome, absl::Duration timeout,
          int local_ranks, int attach_socket);
  ~Control();

  // Connects, before the first call: a connection that others' crowd out of the queue of a socket
  // is tried again until the timeout, where a call would fail.
  absl::Status Connect();

  // Returns the number of slabs, and the bytes rounded up to whole pages.
  struct Arena {
    uint64_t bytes = 0;
    uint32_t slabs = 0;
  };
  // `may_be_there`: a predecessor's is as good, whatever its size.
  absl::StatusOr<Arena> CreateArena(uint64_t bytes, bool may_be_there);
  // Undoes it. Nothing may lie there.
  absl::Status ReleaseArena();

  // Of host memory; see SessionService.GetHostShare.
  absl::StatusOr<uint64_t> HostShare();

  // How the job stands; the first call asks. `ranks`: of the job on this node.
  struct Standing {
    bool admitted = false;
    std::string state;
    uint32_t position = 0;
    std::string reason;
  };
  absl::StatusOr<Standing> Admit(const Admission& admission, uint32_t ranks, uint64_t device_bytes);

  // `claim`: what a predecessor left, NOT_FOUND where it did not.
  absl::StatusOr<Allocation> Allocate(const std::vector<ChunkSpec>& specs, bool claim);
  // Frees what a predecessor left, and was not claimed.
  absl::Status FreeOlder();
  absl::Status Free(std::span<const ChunkId> chunks);
  absl::StatusOr<Plan> MakePlan(const Trace& trace, const PlanRequest& request);
  absl::StatusOr<MemoryUse> GetMemoryUse(uint64_t session);
  // `insists`: where there is no daemon it waits for the next one, as other calls do, but for 10 s
  // at most; else it fails.
  absl::Status Detach(bool insists);

  // Nobody keeps the session, or a daemon said that there is none; and no call was ever answered.
  bool never_known() const { return unknown_.load() && !known_.load(); }

 private:
  struct Stubs;
  template <typename Make>
  // `patience`: for the next daemon, and at most the connection's timeout.
  absl::Status MakeCall(const char* doing, absl::Duration timeout, Make make,
                        absl::Duration patience = absl::InfiniteDuration());
  bool WaitForSuccessor(absl::Time give_up) const;
  // Nobody keeps the session, or will within that time.
  bool IsHungUp(int within_ms = 0) const;
  // A call that allocates, with the others of this node beside it.
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
