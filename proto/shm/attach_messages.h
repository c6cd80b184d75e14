// The messages of the attach socket: a SOCK_SEQPACKET Unix socket at "<gRPC socket>.attach".
//
// One message, one purpose. The client sends Hello; the daemon, which knows the peer from the
// kernel and not from what it says, answers Welcome with the session's descriptors (SCM_RIGHTS), or
// Welcome with an error and closes. The connection stays open for the life of the session: its end
// is the client's death, and pools and slabs made later are passed over it as Memory messages.
#ifndef GEMINID_PROTO_SHM_ATTACH_MESSAGES_H_
#define GEMINID_PROTO_SHM_ATTACH_MESSAGES_H_

#include <cstdint>

#include "proto/shm/device.h"
#include "proto/shm/types.h"

namespace geminid::shm {

inline constexpr uint32_t kHelloMagic = 0x4f4c4847;    // "GHLO"
inline constexpr uint32_t kWelcomeMagic = 0x4d434c57;  // "WLCM"
inline constexpr uint32_t kMemoryMagic = 0x4d4d4547;   // "GEMM"
// Raised when either side could misread the other. A Hello says the newest version that its client
// speaks, and the oldest; the daemon answers in the newest one that it speaks too.
//   2: a Hello asks for a device and says how many ranks are local; a Welcome describes the device.
//   3: a Hello names its run, and a Welcome says whether the session is a predecessor's.
inline constexpr uint32_t kProtocolVersion = 3;
inline constexpr uint32_t kOldestProtocolVersion = 3;  // that this release speaks
inline constexpr int kTokenBytes = 32;
inline constexpr int kNameBytes = 64;
inline constexpr int kErrorTextBytes = 384;
inline constexpr char kAttachSuffix[] = ".attach";
inline constexpr char kLockSuffix[] = ".lock";
// Where what is kept for the daemon's successor is asked for; who removes it gives that up.
inline constexpr char kHolderSuffix[] = ".holder";
// gRPC metadata key that carries the session's token, in lower-case hexadecimal.
inline constexpr char kTokenMetadataKey[] = "geminid-token";
// Trailing metadata of an UNAVAILABLE that the daemon means: no other one comes from a daemon.
inline constexpr char kMeantMetadataKey[] = "geminid-meant";

// What becomes of a session's memory when its client ends without saying goodbye. What is kept goes
// to the next client of the same tenant, job, run, rank and world: it gets the very session, under
// the same number, once the process of its predecessor has ended.
enum class DeathPolicy : uint32_t { kFree = 0, kKeep = 1 };

// A later version may be longer, and begins with the same fields.
struct Hello {
  uint32_t magic;
  uint32_t protocol_version;  // the newest that the client speaks
  uint32_t layout_version;    // the newest that it knows
  DeathPolicy death_policy;
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  int32_t local_world_size;  // ranks of the job on this node; 0: unknown
  DeviceIndex device;        // kAnyDevice: by local rank
  // The oldest that it speaks and knows; 0: only the newest.
  uint16_t oldest_protocol_version;
  uint16_t oldest_layout_version;
  char job[kNameBytes];     // zero-terminated; [a-z0-9-], at most 63 characters
  char client[kNameBytes];  // program and version, for people
  char run[kNameBytes];     // zero-terminated; keeps two runs of a job apart. Empty: no successor
};
static_assert(sizeof(Hello) == 232);

// Descriptors that follow a Welcome with status 0, in this order.
enum class WelcomeFd : int {
  kStateSegment = 0,   // map read-only
  kClientSegment = 1,  // map read-write
  kCommitSegment = 2,  // map read-write
  kDaemonEvent = 3,    // an eventfd: write to wake the daemon, which never reads it
  kClientEvent = 4,    // a stream of bytes that mean nothing: wait here for responses
};
inline constexpr int kWelcomeFds = 5;

// Magic, version, status, the error's text and the size stay the same in all versions, so that a
// client of any version can read why it is refused.
struct Welcome {
  uint32_t magic;
  uint32_t protocol_version;
  uint32_t status;  // an absl::StatusCode; 0 is welcome
  // 0: the session is new. Else it is a predecessor's, which had so many successors by now: its
  // allocations had numbers below this shifted by kAllocationBits.
  uint32_t successor;
  uint64_t session_id;
  uint64_t daemon_epoch;
  uint8_t token[kTokenBytes];
  union {
    char error[kErrorTextBytes];  // zero-terminated; where the status is not 0
    DeviceDescription device;     // the session's
  };
};
static_assert(sizeof(Welcome) == 448);

// A client counts its allocations from its successor's number shifted by so many bits.
inline constexpr int kAllocationBits = 40;

enum class MemoryType : uint32_t { kNone = 0, kHostPool = 1, kDeviceSlab = 2 };

// Comes with one descriptor. Slabs of an arena are numbered from 0 and lie one after another.
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
