// Converts between the library's types and those of shared memory.
#ifndef GEMINID_CLIENT_SRC_WIRE_H_
#define GEMINID_CLIENT_SRC_WIRE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "client/device/device.h"
#include "geminid/types.h"
#include "proto/shm/session_layout.h"

namespace geminid {

constexpr uint32_t Index(ChunkId id) { return static_cast<uint32_t>(id); }
constexpr shm::ChunkId ToShm(ChunkId id) { return shm::ChunkId{Index(id)}; }

// A request with neutral fields: zero, or the value for "none" where zero has a meaning.
shm::Request MakeRequest(shm::RequestOp op);
// The same, for one chunk.
shm::Request MakeRequest(shm::RequestOp op, ChunkId chunk);

// Puts `doing` before the daemon's reason. If room was lacking, appends what to do about
// it.
absl::Status Explain(const absl::Status& status, const std::string& doing,
                     const device::MemoryInfo& memory);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_WIRE_H_
