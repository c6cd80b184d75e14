// From the library's words to those of shared memory, and back.
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

// A request whose fields are zero, but for those where zero means something.
shm::Request MakeRequest(shm::RequestOp op);
// The same, about one chunk.
shm::Request MakeRequest(shm::RequestOp op, ChunkId chunk);

// What was being done goes before the daemon's reason; where room is what was missing, what to do
// about it goes after.
absl::Status Explain(const absl::Status& status, const std::string& doing,
                     const device::MemoryInfo& memory);

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_WIRE_H_
