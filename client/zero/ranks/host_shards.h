// The weights as the ranks of a host keep them together. With the first gather of a chunk after an
// update each of these ranks stores an equal part of the chunk in host memory. Until the next
// update they gather the chunk again from each other alone.
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

// Used by one thread, but for Abort and received_bytes.
class HostShards {
 public:
  // A collective of `all`, of which `host_ranks` are this rank's host's; neither is used later.
  // INVALID_ARGUMENT, on all ranks, where hosts have different numbers of ranks, or there is one.
  static absl::StatusOr<std::unique_ptr<HostShards>> Connect(collectives::Communicator& all,
                                                             collectives::Communicator& host_ranks);
  HostShards(const HostShards&) = delete;
  HostShards& operator=(const HostShards&) = delete;

  // Where all ranks move memory of their devices without the host: the host's ranks, too.
  absl::Status ConnectDevices(device::Device* device, uint64_t scratch_bytes);
  // That Allocate takes, each part to a page at most.
  uint64_t BytesFor(const Layout& layout) const;
  // Takes the host memory. RESOURCE_EXHAUSTED says what for.
  absl::Status Allocate(Session* session, const Layout& layout);
  // Gives it back.
  absl::Status Free();

  collectives::Communicator& ranks() const { return *ranks_; }
  // Null: none.
  collectives::Communicator* device_ranks() const { return device_ranks_.get(); }

  // This rank's part of a chunk of the layout.
  struct Shard {
    ChunkId chunk = kNoChunk;   // that keeps it
    std::byte* home = nullptr;  // of that
    uint64_t begin = 0;         // of the part, in the chunk
    uint64_t bytes = 0;
  };
  Shard Of(uint32_t chunk) const {
    const ChunkHandle& kept = kept_[chunk];
    return {kept.id, kept.home, static_cast<uint64_t>(ranks_->Rank()) * kept.bytes, kept.bytes};
  }
  uint64_t bytes() const;  // of all parts of this rank

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
