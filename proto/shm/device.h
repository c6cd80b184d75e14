// What is known of a device of the node, as the daemon accounts for it and tells its clients.
#ifndef GEMINID_PROTO_SHM_DEVICE_H_
#define GEMINID_PROTO_SHM_DEVICE_H_

#include <array>
#include <cstdint>
#include <string>

#include "proto/shm/types.h"

namespace geminid::shm {

inline constexpr int kDeviceNameBytes = 64;
// "No node of its own" of a device, and "not bound" of memory.
inline constexpr int32_t kNoNumaNode = -1;

// RFC 9562; stays the same over restarts of the daemon.
using Uuid = std::array<uint8_t, 16>;

// Part of the wire contract: a Welcome carries one.
struct DeviceDescription {
  DeviceIndex index;
  DeviceKind kind;
  int32_t numa_node;  // kNoNumaNode: none of its own
  uint32_t reserved;
  uint64_t capacity_bytes;     // what all arenas on it may take together
  uint64_t granularity_bytes;  // arenas are multiples of it
  Uuid uuid;
  char name[kDeviceNameBytes];  // zero-terminated, for people
};
static_assert(sizeof(DeviceDescription) == 112);

// "f81d4fae-7dec-81d0-a765-00a0c91e6bf6".
std::string ToString(const Uuid& uuid);
// The UUID of a device that has none by itself, from two hashes of what makes it that device.
Uuid MakeUuid(uint64_t high, uint64_t low);

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_DEVICE_H_
