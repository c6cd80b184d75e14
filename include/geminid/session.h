// A process's connection to the daemon: its chunks, its device arena, and the copies between them.
//
// Memory is the daemon's; this process maps it. Control (connecting, allocating, planning) goes
// over gRPC and blocks for tens of microseconds or more. Requests (transfers, extents, states) go
// over a shared-memory ring and return at once. Leases need neither.
//
// When the daemon ends: mapped memory stays valid, leases still work, copies already granted
// finish, and every request still waiting for the daemon completes with UNAVAILABLE.
#ifndef GEMINID_SESSION_H_
#define GEMINID_SESSION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/admission.h"
#include "geminid/export.h"
#include "geminid/lease.h"
#include "geminid/pending.h"
#include "geminid/plan.h"
#include "geminid/stream.h"
#include "geminid/types.h"

namespace geminid {

class SessionImpl;  // of the library

struct ConnectOptions {
  // Empty: $GEMINID_SOCKET, else /run/geminid/geminid.sock if it is there, else a private daemon is
  // started for this process; it ends with the last session that uses it.
  std::string socket{};
  // Of a daemon that is started so, such as {"--device", "cuda"}; without any it has a host device.
  std::vector<std::string> daemon_flags{};
  std::string job = "default";  // [a-z0-9-], at most 63 characters
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 0;  // ranks of the job on this node; 0: unknown
  // None: $GEMINID_DEVICE, else the daemon spreads the ranks over its devices by local rank, in
  // turn: of two devices, ranks 0, 1, 2, 3 get 0, 1, 0, 1.
  std::optional<DeviceIndex> device{};
  // If this process dies, its memory is kept for as long as the daemon's keep_time says. With a run
  // it goes to the next process that connects with the same job, run, rank and world_size:
  // zero::Options::resume goes on from there.
  bool keep_on_death = false;
  std::string run{};                 // keeps two runs of a job apart; at most 63 characters
  std::string client_name{};         // for people; empty: the program's name
  uint64_t device_memory_bytes = 0;  // capacity of the arena, at most kMaxArenaBytes; 0: none
  // Host device only: each direction is paced to this; 0: as fast as memcpy.
  double copy_bytes_per_second = 0;
  double copy_latency_seconds = 0;
  // None: this rank takes what is free now and promised to nobody, or is refused.
  std::optional<Admission> admission{};
  // Host device only: as on a GPU, addresses of the arena are for copies, the device's operations,
  // and compute by way of Session::HostAddress; whatever else touches them is killed. So
  // a trainer is tried without a GPU. $GEMINID_STRICT_DEVICE=1 says the same.
  bool strict_device = false;
  // For attaching, for each call to the daemon, and for the next daemon where one died; calls that
  // allocate get more, by their size and the ranks on this node.
  absl::Duration timeout = absl::Seconds(10);
};

struct ChunkSpec {
  std::string name{};  // for people; at most 128 characters
  ChunkKind kind = ChunkKind::kGeneric;
  uint64_t bytes = 0;
  bool has_home = true;  // false: lives on the device only; of kind kShared true
};

// What Allocate made. A plain value: the chunk lives until Free or the end of the session.
struct ChunkHandle {
  ChunkId id = kNoChunk;
  std::byte* home = nullptr;  // null: it has none, or is of kind kShared
  uint64_t bytes = 0;
};

// One copy between the host and the device. A chunk of a host kind is read and written at its home,
// one of kind kGatheredWeight on the device. `source` equal to `destination` moves a chunk with a
// home between that and its device copy: `allocate_destination` means to the device, else back.
struct TransferSpec {
  ChunkId source = kNoChunk;
  ChunkId destination = kNoChunk;
  uint64_t source_offset = 0;  // both within the chunks
  uint64_t destination_offset = 0;
  uint64_t bytes = 0;
  Priority priority = Priority::kNormal;
  TransferCause cause = TransferCause::kDemand;
  uint16_t deadline_moment = kNoDeadline;
  // First give the destination, which must be absent, a device extent at `device_offset`.
  bool allocate_destination = false;
  uint64_t device_offset = kAnyOffset;
  bool may_evict = false;              // others may be evicted to make room for it
  bool publish_when_done = false;      // the destination becomes resident
  bool drop_source_when_done = false;  // the source's device copy is given up
};

struct TransferTotals {
  uint64_t host_to_device_bytes = 0;
  uint64_t device_to_host_bytes = 0;
  uint64_t copies = 0;
};

// What the daemon's ledger charges to this session.
struct MemoryUse {
  std::array<uint64_t, kChunkKinds> host_bytes_by_kind = {};
  std::array<uint64_t, kChunkKinds> device_bytes_by_kind = {};
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
};

// Thread-safe. After fork() the child must not use it: requests fail, leases are not given, and
// nothing it does, not even destroying it, touches the parent's session.
class GEMINID_EXPORT Session {
 public:
  // Blocks for milliseconds; with a private daemon or a large arena longer (about 0.5 s/GiB).
  // UNAVAILABLE: no daemon there; where one died and another may come, after the timeout.
  // FAILED_PRECONDITION: it speaks another version.
  // INVALID_ARGUMENT: there is no such device; the message lists those there are.
  // RESOURCE_EXHAUSTED: the arena does not fit; the message names the device and has the numbers.
  // With an admission it waits for that too: RESOURCE_EXHAUSTED where the job can never fit;
  // DEADLINE_EXCEEDED after its patience, or where not all ranks came; PERMISSION_DENIED above the
  // tenant's priority.
  static absl::StatusOr<std::unique_ptr<Session>> Connect(ConnectOptions options);

  // Waits for running copies, completes what else is pending with CANCELLED, then detaches: all of
  // the session's memory is freed and unmapped. Leases must have been released. Not in a callback.
  // With keep_on_death it waits up to 10 s for the next daemon where one died.
  ~Session();
  // When this session ends, the daemon will treat this process as one that died: it retains the
  // memory as ConnectOptions::keep_on_death says.
  void LeaveToSuccessor();
  // The session was that of a process that died, and has the chunks of that process.
  bool is_successor() const;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::string& socket() const;
  uint64_t id() const;
  // The device that the session belongs to for its life.
  const DeviceDescription& device_description() const;

  // --- chunks ------------------------------------------------------------------------------------
  // All or nothing. Homes read as zeros, are aligned to 64 bytes and backed by memory already.
  // Those of kind kShared, which come alone in a call, are this process's own memory: nothing is
  // made or mapped for them, and the ledger charges them to this session. RESOURCE_EXHAUSTED has
  // the numbers. Blocks for about 0.5 s/GiB.
  absl::StatusOr<std::vector<ChunkHandle>> Allocate(const std::vector<ChunkSpec>& specs);

  // All or nothing. FAILED_PRECONDITION while one of them is leased or in a transfer.
  absl::Status Free(std::span<const ChunkId> chunks);

  // The mapped home; null when the chunk has none or does not exist.
  std::byte* Home(ChunkId chunk) const;
  uint64_t Bytes(ChunkId chunk) const;

  // The whole arena as this process maps it; null without one.
  std::byte* arena() const;
  uint64_t arena_bytes() const;

  // For compute on the host: where this process finds what is at an address of the arena, such as
  // Device(), Lease::data, a parameter or a block of workspace. The same address, unless
  // ConnectOptions::strict_device was asked for; null where the host cannot touch the device's
  // memory. Other addresses are their own.
  std::byte* HostAddress(std::byte* address) const;
  const std::byte* HostAddress(const std::byte* address) const {
    return HostAddress(const_cast<std::byte*>(address));
  }

  // The residency and the place of the chunk's device copy. They may change at any time, but not
  // while this process has a lease on the chunk or fills it. Without a device copy DeviceOffset is
  // kAnyOffset and Device is null.
  Residency ResidencyOf(ChunkId chunk) const;
  uint64_t DeviceOffset(ChunkId chunk) const;
  std::byte* Device(ChunkId chunk) const;

  // --- requests: do not block --------------------------------------------------------------------
  // Complete when everything is copied, and published or dropped if so asked. Copies of more than
  // 16 MiB go in pieces, of which the daemon grants one at a time. On failure after the first piece
  // the destination is left FILLING; Drop it.
  Pending Transfer(const TransferSpec& spec);

  // Gives an absent chunk a device extent: it becomes FILLING.
  Pending AllocateExtent(ChunkId chunk, uint64_t device_offset, bool may_evict);
  // FILLING to RESIDENT.
  Pending Publish(ChunkId chunk);
  // Gives up the device copy; moves no bytes. FAILED_PRECONDITION while leased, or dirty.
  Pending Drop(ChunkId chunk);
  // The nine legal steps: FREE to HOLD and COMPUTE; HOLD to FREE and COMPUTE; COMPUTE to HOLD and
  // HOLD_AFTER_BACKWARD; HOLD_AFTER_BACKWARD to COMPUTE and READY_FOR_REDUCE; READY_FOR_REDUCE to
  // HOLD. `dirty`, with HOLD: the device copy was written. FAILED_PRECONDITION for any other step.
  Pending Transition(ChunkId chunk, ChunkState to, bool dirty = false);
  // The top `bytes` of the arena are the caller's own from completion on. Shrinking always
  // succeeds.
  Pending ReserveWorkspace(uint64_t bytes, bool may_evict);
  // Tells the daemon where in the iteration this rank is.
  void BeginMoment(uint64_t moment);

  // --- leases ------------------------------------------------------------------------------------
  // Holds a resident chunk, or returns nothing. Tens of nanoseconds, no system call.
  std::optional<Lease> TryLease(ChunkId chunk);

  // Holds a chunk that has a home, loading it if need be and evicting others, which are written
  // back first if they are dirty. Blocks. RESOURCE_EXHAUSTED when leased chunks leave no room.
  absl::StatusOr<Lease> Use(ChunkId chunk, absl::Duration timeout = absl::InfiniteDuration());

  // Copies a dirty device copy home; it is clean afterwards.
  Pending WriteBack(ChunkId chunk);

  // For this process's kernels. Lease::ReleaseAfter takes it.
  Stream& compute_stream();
  // Another stream of the device, which must end before the session: on the host device a thread of
  // its own, called `name` (at most 15 characters). RESOURCE_EXHAUSTED: the system gave no thread.
  // Its StreamHandle is the Stream's address, but with CUDA, whose engines take a CUstream.
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string& name);

  // --- planning ----------------------------------------------------------------------------------
  absl::StatusOr<Plan> MakePlan(const Trace& trace, const PlanRequest& request);

  // --- what is known and told --------------------------------------------------------------------
  void AddStall(StallCause cause, absl::Duration waited);
  std::array<absl::Duration, kStallCauses> Stalls() const;  // what was added, by cause
  // The time spent waiting for admission: at the start, and again after other jobs had the device.
  // It counts as no stall.
  absl::Duration Queued() const;
  void SetStep(uint64_t step);
  void SetWorkspace(uint64_t bytes);  // non-model device bytes in use now
  TransferTotals Totals() const;      // of completed copies
  HostRegistration GetHostRegistration() const;
  absl::StatusOr<MemoryUse> GetMemoryUse();
  absl::StatusOr<uint64_t> HostBytes();  // GetMemoryUse().host_bytes

  // UNAVAILABLE once the daemon has ended, in words that say what still works.
  absl::Status Healthy() const;

 private:
  friend class Lease;
  friend class SessionImpl;
  explicit Session(std::unique_ptr<SessionImpl> impl);

  void ReleaseHold(ChunkId chunk, bool dirty);

  std::unique_ptr<SessionImpl> impl_;
};

}  // namespace geminid

#endif  // GEMINID_SESSION_H_
