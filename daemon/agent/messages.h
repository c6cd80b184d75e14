// The protocol of geminid and a geminid-agent, over a socketpair of type SOCK_SEQPACKET.
//
// The agent speaks first: Hello with the facts of its GPU, or an error before it ends. Then it
// answers each request with one reply of the same id, in order. A Created carries one descriptor,
// which keeps the slab's memory alive; other messages carry none. All messages of a direction have
// one size, and both programs are of one release. Each side checks every field: the driver may have
// corrupted its agent, which must not harm the daemon.
#ifndef GEMINID_DAEMON_AGENT_MESSAGES_H_
#define GEMINID_DAEMON_AGENT_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/shm/device.h"

namespace geminid::agent {

inline constexpr uint32_t kRequestMagic = 0x51414d47;  // "GMAQ"
inline constexpr uint32_t kReplyMagic = 0x52414d47;    // "GMAR"
// Raised with every change of a message.
inline constexpr uint32_t kAgentVersion = 2;
// Where the agent finds its end of the socketpair.
inline constexpr int kAgentSocket = 3;
inline constexpr int kUuidBytes = 64;
inline constexpr int kPciBytes = 32;
inline constexpr int kErrorBytes = 256;
// More than any GPU has; a bound that keeps sums from overflowing.
inline constexpr uint64_t kMaxGpuBytes = uint64_t{1} << 46;
inline constexpr uint64_t kMaxGranularityBytes = uint64_t{1} << 30;

enum class RequestType : uint32_t {
  kNone = 0,
  kCreate = 1,   // device memory of `bytes`, a multiple of the granularity
  kScrub = 2,    // writes zeros into a whole slab, which has no owner yet
  kRelease = 3,  // closes a slab; its memory is free once everybody has closed it
  kHealth = 4,
};

struct Request {
  uint32_t magic;
  uint32_t version;
  RequestType type;
  uint32_t reserved;
  uint64_t id;     // of the request; from 1
  uint64_t slab;   // of kScrub and kRelease
  uint64_t bytes;  // of kCreate
};
static_assert(sizeof(Request) == 40);

enum class ReplyType : uint32_t {
  kNone = 0,
  kHello = 1,    // `gpu`; id 0
  kFound = 2,    // of a probe: `gpu`, once for each; id 0
  kNoMore = 3,   // of a probe, the last; id 0
  kCreated = 4,  // `slab`, and a descriptor
  kScrubbed = 5,
  kReleased = 6,
  kHealthy = 7,  // `health`
  kFailed = 8,   // `status` and `error`; id 0: the agent ends
};

// A GPU, or an instance of one (MIG).
struct GpuFacts {
  char uuid[kUuidBytes];  // NVML's, "GPU-..." or "MIG-..."; zero-terminated like the rest
  char pci[kPciBytes];    // "00000000:3B:00.0"
  char name[shm::kDeviceNameBytes];
  int32_t numa_node;  // shm::kNoNumaNode: not known
  uint32_t is_mig;    // 0 or 1
  uint64_t total_bytes;
  uint64_t free_bytes;         // when it was read
  uint64_t granularity_bytes;  // of slabs; a power of two. 0: not asked (kFound)
};
static_assert(sizeof(GpuFacts) == 192);

// Bits of Faults::known: the values that the driver reported. The others are 0.
inline constexpr uint32_t kVolatileErrors = 1;
inline constexpr uint32_t kAggregateErrors = 2;
inline constexpr uint32_t kRetiredPages = 4;
inline constexpr uint32_t kRowRemaps = 8;
inline constexpr uint32_t kXids = 16;
inline constexpr uint32_t kAllKnown = 31;
// The most Xids in one answer; the others come with the next.
inline constexpr uint32_t kMostXids = 8;
inline constexpr uint32_t kLargestXid = 9999;

// The faults of a whole GPU, also for an instance, but without the Xids of other instances.
struct Faults {
  uint64_t volatile_errors;   // that ECC did not correct, since the driver was loaded
  uint64_t aggregate_errors;  // that ECC did not correct, ever
  uint32_t known;
  uint32_t retired_pages_pending;  // 0 or 1, as the next two
  uint32_t row_remap_pending;
  uint32_t row_remap_failed;
  uint32_t xids;  // since the previous answer
  uint32_t xid[kMostXids];
  uint32_t reserved;
};
static_assert(sizeof(Faults) == 72);

struct Health {
  uint64_t total_bytes;
  uint64_t free_bytes;
  uint64_t slabs;        // that this agent holds
  uint64_t slab_bytes;   // their sum
  uint32_t has_context;  // 1: the driver made no memory without one
  uint32_t reserved;
  Faults faults;
};
static_assert(sizeof(Health) == 112);

struct Reply {
  uint32_t magic;
  uint32_t version;
  ReplyType type;
  uint32_t status;  // an absl::StatusCode; 0 but for kFailed
  uint64_t id;
  uint64_t slab;
  union {
    GpuFacts gpu;
    Health health;
    char error[kErrorBytes];  // zero-terminated
  };
};
static_assert(sizeof(Reply) == 288);

Request MakeRequest(RequestType type, uint64_t id, uint64_t slab, uint64_t bytes);
Reply MakeReply(ReplyType type, uint64_t id);
// `error` must not be OK; a message that is too long is truncated.
Reply MakeFailure(uint64_t id, const absl::Status& error);

// The message in these bytes, which may be anything of any length. FAILED_PRECONDITION names both
// versions; INVALID_ARGUMENT says which field cannot be.
absl::StatusOr<Request> ReadRequest(std::span<const std::byte> bytes);
// `descriptors`: how many came with the message.
absl::StatusOr<Reply> ReadReply(std::span<const std::byte> bytes, size_t descriptors);

// The status of a kFailed.
absl::Status StatusOf(const Reply& failure);

// Copies `text` into a field, truncated to fit with its zero.
void SetText(const std::string& text, std::span<char> field);

// The 16 bytes of "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6" or "MIG-...", which are also those
// that CUDA calls the device by. INVALID_ARGUMENT for another text.
absl::StatusOr<shm::Uuid> ParseUuid(const std::string& text);

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_MESSAGES_H_
