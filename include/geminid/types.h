// Identifiers and enumerations that several headers share.
#ifndef GEMINID_TYPES_H_
#define GEMINID_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace geminid {

// A chunk's number within its session.
enum class ChunkId : uint32_t {};
inline constexpr ChunkId kNoChunk{0xffffffffu};

enum class ChunkKind : uint8_t {
  kNone = 0,
  kWeight = 1,          // this rank's shard of the working weights
  kRemainder = 2,       // the low bits of the fp32 master that the rounded weight lacks
  kExpAvg = 3,          // Adam's first moment
  kExpAvgSq = 4,        // Adam's second moment
  kGradient = 5,        // this rank's shard of the reduced gradient
  kGatheredWeight = 6,  // all shards together; only on the device
  kSpare = 7,           // target of the next out-of-place update
  kGeneric = 8,         // anything else
  kShared = 9,          // memory of this process that ranks share; only in the ledger
  kOnDisk = 10,         // files of this process; only in the ledger
};
inline constexpr int kChunkKinds = 11;

// The legal steps are listed at Session::Transition.
enum class ChunkState : uint8_t {
  kFree = 0,
  kHold = 1,
  kCompute = 2,
  kHoldAfterBackward = 3,
  kReadyForReduce = 4,
};

// The state of a chunk's device copy, as the daemon last published it.
enum class Residency : uint8_t {
  kNone = 0,          // no such chunk
  kAbsent = 1,        // no device copy
  kFilling = 2,       // has a device extent that is not published yet
  kResident = 3,      // valid on the device: may be leased
  kEvictPending = 4,  // may be about to leave
  kEvicting = 5,      // leaving
};

// The reason of a transfer; a label of the daemon's metrics.
enum class TransferCause : uint8_t {
  kNone = 0,
  kDemand = 1,     // an operator waits for it
  kPrefetch = 2,   // the plan requested it ahead of time
  kWriteBack = 3,  // a dirty chunk or a reduced gradient goes home
  kUpdate = 4,     // new weights after an optimizer step
};

enum class Priority : uint8_t { kUrgent = 0, kNormal = 1, kBackground = 2 };

// What a rank waited for; a label of the daemon's metrics.
enum class StallCause : uint8_t {
  kCopy = 0,        // bytes between the host and the device
  kGather = 1,      // other ranks' shards of a chunk
  kUpdate = 2,      // the optimizer's update of a chunk
  kReduce = 3,      // gradients on their way home
  kSpace = 4,       // room on the device
  kDaemon = 5,      // an answer of the daemon
  kCollective = 6,  // agreement with other ranks: norm, loss, plan
  kData = 7,        // training data
};
inline constexpr int kStallCauses = 8;

// A device of this node, counted from 0 without gaps.
enum class DeviceIndex : uint32_t {};

// kHost: the memory is host memory with a hard limit, for machines without a GPU.
enum class DeviceKind : uint32_t { kNone = 0, kHost = 1, kCuda = 2 };

struct DeviceDescription {
  DeviceIndex index{};
  DeviceKind kind = DeviceKind::kNone;
  std::string uuid;                // the same after a restart of the daemon
  std::string name;                // for people
  std::optional<int> numa_node;    // nullopt: the device has no node of its own
  uint64_t capacity_bytes = 0;     // limit of all its arenas together
  uint64_t granularity_bytes = 0;  // arenas are multiples of it
};

// How much host memory of a session is registered with its device, which then copies it directly.
// Registration runs in the background. All 0 if the device needs none.
struct HostRegistration {
  uint64_t bytes = 0;
  uint64_t registered_bytes = 0;
  uint64_t refused_bytes = 0;  // by the driver; their copies always go through other memory
  std::string refusal{};       // the driver's message
};

// The daemon chooses: the lowest device offset that fits.
inline constexpr uint64_t kAnyOffset = ~uint64_t{0};
// Device extents begin at multiples of this.
inline constexpr uint64_t kExtentAlignmentBytes = 4096;
// The largest arena: 16 TiB.
inline constexpr uint64_t kMaxArenaBytes = uint64_t{1} << 44;
inline constexpr uint16_t kNoDeadline = 0xffff;

}  // namespace geminid

#endif  // GEMINID_TYPES_H_
