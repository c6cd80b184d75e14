// A process's connection to the daemon: its chunks, its device arena, and the copies between them.
//
// The daemon owns the memory; this process maps it. Control calls (connecting, allocating,
// planning) use gRPC and block for tens of microseconds or more. Requests (transfers, extents,
// states) use a shared-memory ring and return at once. Leases need neither.
//
// After the daemon has ended, mapped memory stays valid, leases still work, and granted copies
// finish. Every request that still waits for the daemon completes with UNAVAILABLE.
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

class SessionImpl;  // internal

struct ConnectOptions {
  // Empty: $GEMINID_SOCKET; else /run/geminid/geminid.sock if it exists; else a private daemon is
  // started for this process, which ends with the last session that uses it.
  std::string socket{};
  // Flags for a daemon that is started so, such as {"--device", "cuda"}; default: a host device.
  std::vector<std::string> daemon_flags{};
  std::string job = "default";  // [a-z0-9-], at most 63 characters
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 0;  // ranks of the job on this node; 0: unknown
  // None: $GEMINID_DEVICE; else the daemon assigns its devices to the ranks in turn, by local rank:
  // with two devices, ranks 0, 1, 2, 3 get 0, 1, 0, 1.
  std::optional<DeviceIndex> device{};
  // If this process dies, the daemon retains its memory for keep_time. With a run it gives the
  // memory to the next process that connects with the same job, run, rank and world_size;
  // zero::Options::resume continues from there.
  bool keep_on_death = false;
  std::string run{};                 // tells runs of a job apart; at most 63 characters
  std::string client_name{};         // for people; empty: the program's name
  uint64_t device_memory_bytes = 0;  // capacity of the arena, at most kMaxArenaBytes; 0: none
  // Host device only: the speed of each direction; 0: as fast as memcpy.
  double copy_bytes_per_second = 0;
  double copy_latency_seconds = 0;
  // None: this rank gets memory that is free now and not reserved, or is refused.
  std::optional<Admission> admission{};
  // Host device only: tests a trainer without a GPU. As on a GPU, the arena's addresses are only
  // for copies, the device's operations, and compute through Session::HostAddress; other code that
  // touches them is killed. $GEMINID_STRICT_DEVICE=1 does the same.
  bool strict_device = false;
  // For attaching, for each call to the daemon, and for the next daemon after one died. Calls that
  // allocate get more, by their size and the number of ranks on this node.
  absl::Duration timeout = absl::Seconds(10);
};

struct ChunkSpec {
  std::string name{};  // for people; at most 128 characters
  ChunkKind kind = ChunkKind::kGeneric;
  uint64_t bytes = 0;
  bool has_home = true;  // false: lives on the device only; true for kShared, false for kOnDisk
};

// A chunk that Allocate made. A plain value: the chunk lives until Free or the end of the session.
struct ChunkHandle {
  ChunkId id = kNoChunk;
  std::byte* home = nullptr;  // null: no home, or of kind kShared
  uint64_t bytes = 0;
};

// One copy between the host and the device. Chunks of host kinds are accessed at their home, those
// of kind kGatheredWeight on the device. If `source` equals `destination`, the copy is between a
// chunk's home and its device copy: with `allocate_destination` to the device, else back.
struct TransferSpec {
  ChunkId source = kNoChunk;
  ChunkId destination = kNoChunk;
  uint64_t source_offset = 0;  // offsets are within the chunks
  uint64_t destination_offset = 0;
  uint64_t bytes = 0;
  Priority priority = Priority::kNormal;
  TransferCause cause = TransferCause::kDemand;
  uint16_t deadline_moment = kNoDeadline;
  // First allocate a device extent at `device_offset` for the destination, which must be absent.
  bool allocate_destination = false;
  uint64_t device_offset = kAnyOffset;
  bool may_evict = false;              // other chunks may be evicted to make room
  bool publish_when_done = false;      // the destination becomes resident
  bool drop_source_when_done = false;  // the source's device copy is dropped
};

struct TransferTotals {
  uint64_t host_to_device_bytes = 0;
  uint64_t device_to_host_bytes = 0;
  uint64_t copies = 0;
};

// The memory that the daemon's ledger charges to this session.
struct MemoryUse {
  std::array<uint64_t, kChunkKinds> host_bytes_by_kind = {};
  std::array<uint64_t, kChunkKinds> device_bytes_by_kind = {};
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
  uint64_t disk_bytes = 0;
};

// Thread-safe. After fork() the child must not use it: requests fail, and leases are not granted.
// Nothing that the child does with it, not even destruction, affects the parent's session.
class GEMINID_EXPORT Session {
 public:
  // Blocks for milliseconds; longer with a private daemon or a large arena (about 0.5 s/GiB).
  // UNAVAILABLE: there is no daemon; after the timeout, if one died and another may come.
  // FAILED_PRECONDITION: the daemon speaks another version.
  // INVALID_ARGUMENT: there is no such device; the message lists the devices.
  // RESOURCE_EXHAUSTED: the arena does not fit; the message names the device and has the numbers.
  // With an admission it also waits to be admitted. RESOURCE_EXHAUSTED: the job can never fit.
  // DEADLINE_EXCEEDED: its patience has ended, or not all ranks came. PERMISSION_DENIED: the
  // priority is above the tenant's.
  static absl::StatusOr<std::unique_ptr<Session>> Connect(ConnectOptions options);

  // Waits for running copies, completes other pending requests with CANCELLED, then detaches: all
  // memory of the session is freed and unmapped. Leases must have been released. Not in a callback.
  // With keep_on_death it waits up to 10 s for the next daemon if one died.
  ~Session();
  // Makes the daemon treat the session's end like this process's death: it retains the memory as
  // ConnectOptions::keep_on_death says.
  void LeaveToSuccessor();
  // The session belonged to a process that died; this one has that process's chunks.
  bool is_successor() const;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::string& socket() const;
  uint64_t id() const;
  // The session's device, which never changes.
  const DeviceDescription& device_description() const;

  // --- chunks ------------------------------------------------------------------------------------
  // All or nothing. Homes read as zeros, are aligned to 64 bytes, and have their memory already.
  // Chunks of kind kShared, which cannot be mixed with others in a call, are this process's own
  // memory: the call only charges them to this session in the ledger. The same holds for a chunk of
  // kind kOnDisk, one in a call: files of this process. RESOURCE_EXHAUSTED has the
  // numbers. Blocks for about 0.5 s/GiB.
  absl::StatusOr<std::vector<ChunkHandle>> Allocate(const std::vector<ChunkSpec>& specs);

  // All or nothing. FAILED_PRECONDITION while a chunk is leased or in a transfer.
  absl::Status Free(std::span<const ChunkId> chunks);

  // The mapped home; null if the chunk has none or does not exist.
  std::byte* Home(ChunkId chunk) const;
  uint64_t Bytes(ChunkId chunk) const;

  // The whole arena as this process maps it; null without one.
  std::byte* arena() const;
  uint64_t arena_bytes() const;

  // For compute on the host: this process's address for the data at an arena address, such as
  // Device(), Lease::data, a parameter or a block of workspace. The same address, unless
  // ConnectOptions::strict_device is set. Null if the host cannot touch the device's memory.
  // Addresses outside of the arena are returned unchanged.
  std::byte* HostAddress(std::byte* address) const;
  const std::byte* HostAddress(const std::byte* address) const {
    return HostAddress(const_cast<std::byte*>(address));
  }

  // The residency and the address of the chunk's device copy. They may change at any time, but not
  // while this process has a lease on the chunk or fills it. Without a device copy, DeviceOffset is
  // kAnyOffset and Device is null.
  Residency ResidencyOf(ChunkId chunk) const;
  uint64_t DeviceOffset(ChunkId chunk) const;
  std::byte* Device(ChunkId chunk) const;

  // --- requests: do not block --------------------------------------------------------------------
  // Completes when all bytes are copied, and the chunk is published or dropped if requested. Copies
  // above 16 MiB are split; the daemon grants one piece at a time. After a failure behind the first
  // piece the destination stays FILLING: Drop it.
  Pending Transfer(const TransferSpec& spec);

  // Gives an absent chunk a device extent: it becomes FILLING.
  Pending AllocateExtent(ChunkId chunk, uint64_t device_offset, bool may_evict);
  // FILLING to RESIDENT.
  Pending Publish(ChunkId chunk);
  // Gives up the device copy; moves no bytes. FAILED_PRECONDITION while it is leased or dirty.
  Pending Drop(ChunkId chunk);
  // The nine legal steps: FREE to HOLD and COMPUTE; HOLD to FREE and COMPUTE; COMPUTE to HOLD and
  // HOLD_AFTER_BACKWARD; HOLD_AFTER_BACKWARD to COMPUTE and READY_FOR_REDUCE; READY_FOR_REDUCE to
  // HOLD. FAILED_PRECONDITION for any other step. `dirty`, with HOLD: the device copy was written.
  Pending Transition(ChunkId chunk, ChunkState to, bool dirty = false);
  // After completion the top `bytes` of the arena belong to the caller. Shrinking always
  // succeeds.
  Pending ReserveWorkspace(uint64_t bytes, bool may_evict);
  // Tells the daemon which moment of the iteration this rank has reached.
  void BeginMoment(uint64_t moment);

  // --- leases ------------------------------------------------------------------------------------
  // Holds a resident chunk; nullopt if it is not. Tens of nanoseconds, no system call.
  std::optional<Lease> TryLease(ChunkId chunk);

  // Holds a chunk that has a home. Loads it if necessary, and evicts others; dirty ones are written
  // back first. Blocks. RESOURCE_EXHAUSTED if leased chunks leave no room.
  absl::StatusOr<Lease> Use(ChunkId chunk, absl::Duration timeout = absl::InfiniteDuration());

  // Copies a dirty device copy home; it is clean afterwards.
  Pending WriteBack(ChunkId chunk);

  // For this process's kernels; can be passed to Lease::ReleaseAfter.
  Stream& compute_stream();
  // Another stream of the device, which must end before the session. On the host device it has a
  // thread of its own, called `name` (at most 15 characters). RESOURCE_EXHAUSTED: the system gave
  // no thread. Its StreamHandle is the Stream's address; with CUDA, engines need a CUstream.
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream(const std::string& name);

  // --- planning ----------------------------------------------------------------------------------
  absl::StatusOr<Plan> MakePlan(const Trace& trace, const PlanRequest& request);

  // --- statistics --------------------------------------------------------------------------------
  void AddStall(StallCause cause, absl::Duration waited);
  std::array<absl::Duration, kStallCauses> Stalls() const;  // sums of AddStall, by cause
  // The time spent waiting for admission, at the start and after other jobs had the device. It does
  // not count as a stall.
  absl::Duration Queued() const;
  void SetStep(uint64_t step);
  void SetWorkspace(uint64_t bytes);  // non-model device bytes in use now
  TransferTotals Totals() const;      // of completed copies
  HostRegistration GetHostRegistration() const;
  absl::StatusOr<MemoryUse> GetMemoryUse();
  absl::StatusOr<uint64_t> HostBytes();  // GetMemoryUse().host_bytes

  // UNAVAILABLE once the daemon has ended; the message says what still works.
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
