// The two shared segments of a session, and the entries of its rings.
//
//   state segment: the daemon writes, the client maps it read-only
//   +--------------+--------------+---------------------+---------------------------+
//   | StateHeader  | DaemonCursor | responses[1024]     | state[kMaxChunks]         |
//   | 64 B         | 64 B         | 64 KiB              | 8 B each                  |
//   +--------------+--------------+---------------------+---------------------------+
//   client segment: the client writes, the daemon reads each field once and validates it
//   +--------------+--------------+----------+-------------+----------------+---------+
//   | ClientHeader | ClientCursor | Counters | completion  | requests[1024] | lease[] |
//   | 64 B         | 64 B         | 256 B    | [64] words  | 64 KiB         | 8 B each|
//   +--------------+--------------+----------+-------------+----------------+---------+
//
// Each ring has one producer and one consumer. The producer's segment holds the entries and the
// producer's index; the consumer's segment holds its index. Wake-up: a consumer sets its `asleep`
// word, looks once more, then waits on its event. A producer that sees `asleep` writes that event.
#ifndef GEMINID_PROTO_SHM_SESSION_LAYOUT_H_
#define GEMINID_PROTO_SHM_SESSION_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/shm/limits.h"
#include "proto/shm/types.h"

namespace geminid::shm {

inline constexpr uint32_t kStateMagic = 0x41545347;   // "GSTA"
inline constexpr uint32_t kClientMagic = 0x494c4347;  // "GCLI"
inline constexpr uint32_t kOldestLayoutVersion = 3;   // the oldest that this release knows
inline constexpr uint32_t kLayoutVersion = 3;         // 3: eight causes of stalls
inline constexpr uint32_t kRingEntries = 1024;        // a power of two
inline constexpr uint32_t kCompletionWords = 64;
inline constexpr uint32_t kMaxTicketsInFlight = kCompletionWords;

// --- requests: client to daemon ------------------------------------------------------------------

enum class RequestOp : uint16_t {
  kNone = 0,
  kTransfer = 1,          // copy bytes between tiers under a ticket, perhaps allocating an extent
  kTransferDone = 2,      // the ticket's copy is complete; answered only on error
  kAllocateExtent = 3,    // give `chunk` a device extent without copying: it becomes FILLING
  kPublish = 4,           // `chunk`'s device copy is valid: it becomes RESIDENT
  kDrop = 5,              // give up `chunk`'s device copy; moves no bytes
  kTransition = 6,        // Gemini state of `chunk` becomes `argument` (kStateBits, kDirtyBit)
  kReserveWorkspace = 7,  // the top `bytes` of the arena are the client's own (activations)
  kBeginMoment = 8,       // the client reached moment `argument`; never answered
};

// Flags of a request.
inline constexpr uint16_t kAllocateDestination = 1u
                                                 << 0;  // give `destination` a device extent first
inline constexpr uint16_t kPublishWhenDone = 1u << 1;   // destination is RESIDENT on kTransferDone
inline constexpr uint16_t kDropSourceWhenDone = 1u
                                                << 2;  // source's extent is free on kTransferDone
inline constexpr uint16_t kMayEvict = 1u << 3;         // the daemon may evict others to make room
inline constexpr uint16_t kNoReply = 1u << 4;          // answer only when it fails

// In the argument of kTransition: a ChunkState, and a bit that says that the device copy was
// written and the home is stale.
inline constexpr uint64_t kStateBits = 0xff;
inline constexpr uint64_t kDirtyBit = 0x100;

inline constexpr uint16_t kNoDeadline = 0xffff;

// "Any offset": the daemon chooses the lowest one that fits.
inline constexpr uint64_t kAnyOffset = ~uint64_t{0};

// One ring entry of 64 bytes. An operation ignores the fields that it does not name.
//   kTransfer: copies `bytes` from `source` at source_offset to `destination` at destination_offset
//     (offsets within the chunks). A chunk of a host kind is read and written at its home, one of
//     kind kGatheredWeight on the device. kGeneric has both: `argument`, a Direction, decides.
//     device_offset: where in the arena to put the destination with kAllocateDestination.
struct Request {
  uint64_t sequence;  // ring position + 1; written last
  uint64_t request_id;
  RequestOp op;
  uint16_t flags;
  Priority priority;
  TransferCause cause;
  uint16_t deadline_moment;  // or kNoDeadline
  ChunkId source;
  ChunkId destination;
  uint64_t source_offset;
  uint64_t destination_offset;
  uint64_t bytes;
  union {
    uint64_t device_offset;  // kTransfer, kAllocateExtent
    uint64_t argument;       // kTransition, kBeginMoment; kTransferDone: the ticket
  };
};
static_assert(sizeof(Request) == 64);
static_assert(offsetof(Request, source_offset) == 32);

// --- responses: daemon to client -----------------------------------------------------------------

enum class ResponseOp : uint16_t {
  kNone = 0,
  kDone = 1,    // the request is carried out; for kAllocateExtent, see device_offset
  kTicket = 2,  // execute this copy, then write the completion word and send kTransferDone
  kError = 3,   // `status` is an absl::StatusCode; nothing was changed
};

// One ring entry of 64 bytes. For kTicket, host_offset is within the host pool `pool` and
// device_offset within the session's arena; `direction` says which is copied to the other.
struct Response {
  uint64_t sequence;  // ring position + 1; written last
  uint64_t request_id;
  ResponseOp op;
  uint16_t status;
  Direction direction;
  uint8_t error_code;  // an ErrorReason, from which the client words its message
  uint16_t completion_index;
  uint64_t ticket;
  PoolId pool;
  uint32_t reserved;
  uint64_t host_offset;
  uint64_t device_offset;  // in the arena; for kDone of an allocation: the extent's
  uint64_t bytes;
};
static_assert(sizeof(Response) == 64);

// Why a request failed, if the status code alone does not say it.
enum class ErrorReason : uint8_t {
  kNone = 0,
  kUnknownChunk = 1,
  kOutOfRange = 2,
  kIllegalTransition = 3,
  kLeased = 4,
  kArenaFull = 5,
  kNotResident = 6,
  kAlreadyResident = 7,
  kQueueFull = 8,
  kUnknownTicket = 9,
  kExtentBusy = 10,
  kMalformed = 11,
};
const char* Name(ErrorReason reason);

// --- segments ------------------------------------------------------------------------------------

// Phase of the daemon, which a client can see without a message.
// kEnded: the operator, or the session's own user, ended the job.
enum class Phase : uint32_t { kNone = 0, kServing = 1, kDraining = 2, kGone = 3, kEnded = 4 };

struct alignas(64) StateHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t size_of_header;
  uint32_t max_chunks;
  uint32_t ring_entries;
  uint32_t reserved;
  uint64_t session_id;
  std::atomic<uint64_t> daemon_epoch;  // grows by one with each start of the daemon
  std::atomic<uint32_t> phase;         // a Phase
  // 1: the daemon wants the session's arena back, at the next point where the client can give it.
  std::atomic<uint32_t> yield;
};
static_assert(sizeof(StateHeader) == 64);

struct alignas(64) DaemonCursor {
  std::atomic<uint64_t> responses_written;
  std::atomic<uint64_t> requests_read;
  std::atomic<uint32_t> asleep;  // 1: after a request, write the daemon's event
};
static_assert(sizeof(DaemonCursor) == 64);

struct StateSegment {
  StateHeader header;
  DaemonCursor cursor;
  Response responses[kRingEntries];
  std::atomic<uint64_t> state[kMaxChunks];
};

struct alignas(64) ClientHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t size_of_header;
  uint32_t max_chunks;
};
static_assert(sizeof(ClientHeader) == 64);

struct alignas(64) ClientCursor {
  std::atomic<uint64_t> requests_written;
  std::atomic<uint64_t> responses_read;
  std::atomic<uint32_t> asleep;  // 1: after a response, write the client's event
};
static_assert(sizeof(ClientCursor) == 64);

// Causes of waiting, under the names that metrics use.
enum class StallCause : uint8_t {
  kCopy = 0,
  kGather = 1,
  kUpdate = 2,
  kReduce = 3,
  kSpace = 4,
  kDaemon = 5,
  kCollective = 6,
  kData = 7,
};
inline constexpr int kStallCauses = 8;
const char* Name(StallCause cause);

// Numbers that only the client knows. They only grow, except where noted.
struct alignas(64) ClientCounters {
  std::atomic<uint64_t> stall_nanoseconds[kStallCauses];
  std::atomic<uint64_t> step;             // optimizer steps done
  std::atomic<uint64_t> moment;           // may fall: position within the iteration
  std::atomic<uint64_t> workspace_bytes;  // may fall: non-model device bytes in use now
  std::atomic<uint64_t> heartbeat;        // changes while the client's transfer thread lives
  std::atomic<uint64_t> leases_acquired;
  std::atomic<uint64_t> lease_misses;
  std::atomic<uint64_t> queued_nanoseconds;  // waiting for admission, which is no stall
  // Twelve of these words are used: host_registration.h, disk_use.h, batch_numbers.h.
  std::atomic<uint64_t> reserved[17];
};
static_assert(sizeof(ClientCounters) == 256);

struct ClientSegment {
  ClientHeader header;
  ClientCursor cursor;
  ClientCounters counters;
  std::atomic<uint64_t>
      completion[kCompletionWords];  // ticket of the copy that completed last in this slot
  Request requests[kRingEntries];
  std::atomic<uint64_t> lease[kMaxChunks];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(offsetof(StateSegment, responses) == 128);
static_assert(offsetof(StateSegment, state) == 128 + 64 * kRingEntries);
static_assert(offsetof(ClientSegment, completion) == 128 + 256);
static_assert(offsetof(ClientSegment, requests) == 128 + 256 + 8 * kCompletionWords);
static_assert(sizeof(StateSegment) == 128 + 64 * kRingEntries + 8 * kMaxChunks);

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_SESSION_LAYOUT_H_
