// The messages of the attach socket: a SOCK_SEQPACKET Unix socket at "<gRPC socket>.attach".
//
// Each message has one purpose. The client sends Hello. The daemon asks the kernel, not the peer,
// who the peer is. It answers Welcome with the session's descriptors (SCM_RIGHTS), or Welcome with
// an error, and then closes. The connection stays open for the life of the session: its end means
// that the client is dead. Pools and slabs made later are passed over it as Memory messages.
#ifndef GEMINID_PROTO_SHM_ATTACH_MESSAGES_H_
#define GEMINID_PROTO_SHM_ATTACH_MESSAGES_H_

#include <cstdint>

#include "proto/shm/device.h"
#include "proto/shm/types.h"

namespace geminid::shm {

inline constexpr uint32_t kHelloMagic = 0x4f4c4847;    // "GHLO"
inline constexpr uint32_t kWelcomeMagic = 0x4d434c57;  // "WLCM"
inline constexpr uint32_t kMemoryMagic = 0x4d4d4547;   // "GEMM"
// Raised when either side could misread the other. A Hello has the newest and the oldest version
// that its client speaks; the daemon answers in the newest of these that it speaks too.
//   2: a Hello asks for a device and says how many ranks are local; a Welcome describes the device.
//   3: a Hello names its run, and a Welcome says whether the session was a previous client's.
inline constexpr uint32_t kProtocolVersion = 3;
inline constexpr uint32_t kOldestProtocolVersion = 3;  // the oldest that this release speaks
inline constexpr int kTokenBytes = 32;
inline constexpr int kNameBytes = 64;
inline constexpr int kErrorTextBytes = 384;
inline constexpr char kAttachSuffix[] = ".attach";
inline constexpr char kLockSuffix[] = ".lock";
// Here the next daemon asks for the state kept for it. Removing this socket gives that state up.
inline constexpr char kHolderSuffix[] = ".holder";
// gRPC metadata key that carries the session's token, in lower-case hexadecimal.
inline constexpr char kTokenMetadataKey[] = "geminid-token";
// Trailing metadata of an UNAVAILABLE that the daemon itself sent; without it, gRPC made the error.
inline constexpr char kMeantMetadataKey[] = "geminid-meant";

// What happens to a session's memory when its client ends without Detach. Memory that is kept goes
// to the next client of the same tenant, job, run, rank and world. It gets the same session, under
// the same number, once the process of the previous client has ended.
enum class DeathPolicy : uint32_t { kFree = 0, kKeep = 1 };

// Later versions begin with the same fields, and may be longer.
struct Hello {
  uint32_t magic;
  uint32_t protocol_version;  // the newest that the client speaks
  uint32_t layout_version;    // the newest that the client knows
  DeathPolicy death_policy;
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  int32_t local_world_size;  // ranks of the job on this node; 0: unknown
  DeviceIndex device;        // kAnyDevice: the daemon chooses
  // The oldest versions that the client speaks and knows; 0: only the newest.
  uint16_t oldest_protocol_version;
  uint16_t oldest_layout_version;
  char job[kNameBytes];     // zero-terminated; [a-z0-9-], at most 63 characters
  char client[kNameBytes];  // program and version, for people
  char run[kNameBytes];     // zero-terminated; separates runs of a job. Empty: no next client
};
static_assert(sizeof(Hello) == 232);

// Descriptors that follow a Welcome with status 0, in this order.
enum class WelcomeFd : int {
  kStateSegment = 0,   // map read-only
  kClientSegment = 1,  // map read-write
  kCommitSegment = 2,  // map read-write
  kDaemonEvent = 3,    // an eventfd: write to it to wake the daemon, which never reads it
  kClientEvent = 4,    // wait here for responses; the bytes that arrive mean nothing
};
inline constexpr int kWelcomeFds = 5;

// Magic, version, status, error text and size are the same in all versions, so that a client of any
// version can read why it is refused.
struct Welcome {
  uint32_t magic;
  uint32_t protocol_version;
  uint32_t status;  // an absl::StatusCode; 0: welcome
  // 0: the session is new. Otherwise it was a previous client's, and has had so many next clients.
  // Numbers of earlier allocations are below this number shifted left by kAllocationBits.
  uint32_t successor;
  uint64_t session_id;
  uint64_t daemon_epoch;
  uint8_t token[kTokenBytes];
  union {
    char error[kErrorTextBytes];  // zero-terminated; if the status is not 0
    DeviceDescription device;     // the session's device, if the status is 0
  };
};
static_assert(sizeof(Welcome) == 448);

// A client numbers its allocations upwards from Welcome::successor shifted left by so many bits.
inline constexpr int kAllocationBits = 40;

enum class MemoryType : uint32_t { kNone = 0, kHostPool = 1, kDeviceSlab = 2 };

// Comes with one descriptor. An arena's slabs are numbered from 0 and lie one after another.
struct Memory {
  uint32_t magic;
  MemoryType type;
  PoolId pool;
  uint32_t slab;
  uint64_t bytes;
  uint64_t arena_offset;
};
static_assert(sizeof(Memory) == 32);

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_ATTACH_MESSAGES_H_
