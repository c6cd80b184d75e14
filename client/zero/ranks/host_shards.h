// Copies of the weights in host memory, sharded over the ranks of a host. When a chunk is first
// gathered after an update, each of these ranks stores an equal shard of it in host memory. Until
// the next update they gather the chunk again from each other alone.
#ifndef GEMINID_CLIENT_ZERO_RANKS_HOST_SHARDS_H_
#define GEMINID_CLIENT_ZERO_RANKS_HOST_SHARDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/device/device.h"
#include "client/zero/basics/layout.h"
#include "geminid/communicator.h"
#include "geminid/session.h"

namespace geminid::zero {

// Used by one thread, except Abort and received_bytes.
class HostShards {
 public:
  // A collective of `all`; `host_ranks` are those of this rank's host. Neither is used afterwards.
  // INVALID_ARGUMENT on all ranks if hosts have different numbers of ranks, or there is one host.
  static absl::StatusOr<std::unique_ptr<HostShards>> Connect(collectives::Communicator& all,
                                                             collectives::Communicator& host_ranks);
  HostShards(const HostShards&) = delete;
  HostShards& operator=(const HostShards&) = delete;

  // If all ranks move device memory without the host, connects the host's ranks that way too.
  absl::Status ConnectDevices(device::Device* device, uint64_t scratch_bytes);
  // The bytes that Allocate takes; each shard may be rounded up to a page.
  uint64_t BytesFor(const Layout& layout) const;
  // Allocates the host memory. RESOURCE_EXHAUSTED says what it is for.
  absl::Status Allocate(Session* session, const Layout& layout);
  // Frees the host memory.
  absl::Status Free();

  collectives::Communicator& ranks() const { return *ranks_; }
  // Null if ConnectDevices was not called.
  collectives::Communicator* device_ranks() const { return device_ranks_.get(); }

  // This rank's shard of a chunk of the layout.
  struct Shard {
    ChunkId chunk = kNoChunk;   // the session's chunk that stores the shard
    std::byte* home = nullptr;  // its memory
    uint64_t begin = 0;         // of the shard, within the chunk of the layout
    uint64_t bytes = 0;
  };
  Shard Of(uint32_t chunk) const {
    const ChunkHandle& kept = kept_[chunk];
    return {kept.id, kept.home, static_cast<uint64_t>(ranks_->Rank()) * kept.bytes, kept.bytes};
  }
  uint64_t bytes() const;  // of all shards of this rank

  void Abort(const std::string& reason);
  uint64_t received_bytes() const;  // from ranks of the host

 private:
  explicit HostShards(std::unique_ptr<collectives::Communicator> ranks)
      : ranks_(std::move(ranks)) {}

  const std::unique_ptr<collectives::Communicator> ranks_;
  std::unique_ptr<collectives::Communicator> device_ranks_;
  Session* session_ = nullptr;
  std::vector<ChunkHandle> kept_;  // by chunk of the layout
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_HOST_SHARDS_H_
