// A device of the node, as the daemon accounts for it and describes it to its clients.
#ifndef GEMINID_PROTO_SHM_DEVICE_H_
#define GEMINID_PROTO_SHM_DEVICE_H_

#include <array>
#include <cstdint>
#include <string>

#include "proto/shm/types.h"

namespace geminid::shm {

inline constexpr int kDeviceNameBytes = 64;
// For a device: it has no node of its own. For memory: it is not bound to a node.
inline constexpr int32_t kNoNumaNode = -1;

// As in RFC 9562. A device's UUID stays the same when the daemon restarts.
using Uuid = std::array<uint8_t, 16>;

// Part of the wire contract: a Welcome carries one.
struct DeviceDescription {
  DeviceIndex index;
  DeviceKind kind;
  int32_t numa_node;  // kNoNumaNode: the device has none
  uint32_t reserved;
  uint64_t capacity_bytes;     // the most that all its arenas may take together
  uint64_t granularity_bytes;  // sizes of arenas are multiples of it
  Uuid uuid;
  char name[kDeviceNameBytes];  // zero-terminated, for people
};
static_assert(sizeof(DeviceDescription) == 112);

// Text such as "f81d4fae-7dec-81d0-a765-00a0c91e6bf6".
std::string ToString(const Uuid& uuid);
// Makes a UUID for a device that has none, from two hashes of the facts that identify the device.
Uuid MakeUuid(uint64_t high, uint64_t low);

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_DEVICE_H_
