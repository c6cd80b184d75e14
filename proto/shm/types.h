// Enumerations and identifiers that are shared by the daemon, by its clients, and by the messages
// between them.
//
// The values are part of the wire contract: they are written into shared memory and must never be
// renumbered. Zero is always "none", because a page that was lost reads as zeros.
#ifndef GEMINID_PROTO_SHM_TYPES_H_
#define GEMINID_PROTO_SHM_TYPES_H_

#include <cstdint>

namespace geminid::shm {

// A session is one attached client process: one rank of one job.
enum class SessionId : uint64_t {};
// A chunk's number within its session; the index of its words in the shared tables.
enum class ChunkId : uint32_t {};
// One granted transfer. Never reused within a session.
enum class TicketId : uint64_t {};
// One memfd of host memory.
enum class PoolId : uint32_t {};
// A device of this node, counted from 0 without gaps.
enum class DeviceIndex : uint32_t {};

inline constexpr ChunkId kNoChunk{0xffffffffu};
// In a Hello: the daemon chooses, by local rank or, for a lone rank, by free memory.
inline constexpr DeviceIndex kAnyDevice{0xffffffffu};
// Limited, because each device is a label value of the metrics and a row of every table.
inline constexpr uint32_t kMaxDevices = 64;

enum class Tier : uint8_t { kNone = 0, kDevice = 1, kHost = 2, kDisk = 3 };

// kHost: host memory with a fixed capacity, for machines without a GPU.
enum class DeviceKind : uint32_t { kNone = 0, kHost = 1, kCuda = 2 };

enum class ChunkKind : uint8_t {
  kNone = 0,
  kWeight = 1,          // this rank's shard of the working weights
  kRemainder = 2,       // completes the rounded weight to its fp32 master
  kExpAvg = 3,          // Adam's first moment
  kExpAvgSq = 4,        // Adam's second moment
  kGradient = 5,        // this rank's shard of the reduced gradient
  kGatheredWeight = 6,  // all shards together, on the device from first to last use
  kSpare = 7,           // target of the next out-of-place update
  kGeneric = 8,         // anything a user of the client library declares
  kShared = 9,          // the client's own memory, shared by ranks; the ledger only counts it
  kOnDisk = 10,         // the client's own files; the ledger only counts them
};
inline constexpr ChunkKind kLastChunkKind = ChunkKind::kOnDisk;

enum class Direction : uint8_t { kNone = 0, kHostToDevice = 1, kDeviceToHost = 2 };

// Why bytes move. Each cause is a label value of the transfer metrics.
enum class TransferCause : uint8_t {
  kNone = 0,
  kDemand = 1,     // an operator waits for the bytes
  kPrefetch = 2,   // the plan asked for them ahead of time
  kWriteBack = 3,  // a dirty chunk, or a reduced gradient, goes home
  kUpdate = 4,     // new weights after an optimizer step
};

// Lower values are more urgent.
enum class Priority : uint8_t { kUrgent = 0, kNormal = 1, kBackground = 2 };
inline constexpr int kPriorities = 3;

constexpr uint32_t Index(ChunkId id) { return static_cast<uint32_t>(id); }
constexpr uint64_t Value(SessionId id) { return static_cast<uint64_t>(id); }
constexpr uint64_t Value(TicketId id) { return static_cast<uint64_t>(id); }
constexpr uint32_t Value(PoolId id) { return static_cast<uint32_t>(id); }
constexpr uint32_t Value(DeviceIndex index) { return static_cast<uint32_t>(index); }

const char* Name(Tier tier);
const char* Name(DeviceKind kind);
const char* Name(ChunkKind kind);
const char* Name(Direction direction);
const char* Name(TransferCause cause);

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_TYPES_H_
