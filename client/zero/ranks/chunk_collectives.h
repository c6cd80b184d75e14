// Collectives on chunks of the device: by the ranks' own links where those reach its memory, else
// by way of host memory.
#ifndef GEMINID_CLIENT_ZERO_RANKS_CHUNK_COLLECTIVES_H_
#define GEMINID_CLIENT_ZERO_RANKS_CHUNK_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/basics/compute.h"
#include "client/zero/basics/layout.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/ranks/host_exchange.h"
#include "client/zero/ranks/host_shards.h"
#include "geminid/communicator.h"

namespace geminid::zero {

// Of one thread.
class ChunkCollectives {
 public:
  // `ranks` and `device_ranks`, which may be null, are of all ranks; `host_shards`, which may be
  // null, has those of this host. All outlive it. `place`: operations on the device.
  ChunkCollectives(const EngineSetup& setup, const ComputePlace& place,
                   collectives::Communicator* ranks, collectives::Communicator* device_ranks,
                   HostShards* host_shards);

  // What a collective is of. Ranks that went apart never take one chunk for another of the same
  // size: the label differs.
  struct Chunk {
    std::string label{};
    ChunkId id = kNoChunk;
    std::byte* data = nullptr;  // the whole chunk, on the device or in host memory
    const ChunkShape* shape = nullptr;
    bool within_host = false;  // of the ranks of this host
  };
  // This rank's slice is there; afterwards all are.
  absl::Status AllGather(const Chunk& chunk);
  // This rank's slice becomes that of the mean over the ranks, formed in fp32 and rounded once; the
  // others hold anything.
  absl::Status Average(const Chunk& chunk);

 private:
  struct Group {
    collectives::Communicator* ranks = nullptr;
    collectives::Communicator* device_ranks = nullptr;  // or null
    std::unique_ptr<HostExchange> exchange{};           // null: there is no such group
  };
  // What moves memory of the device between the ranks, and where it finds it. Null: nothing can,
  // but by way of the host.
  struct Ranks {
    collectives::Communicator* communicator = nullptr;
    std::byte* data = nullptr;
  };
  const Group& Label(const Chunk& chunk) const;
  absl::StatusOr<Ranks> RanksFor(const Group& group, std::byte* data) const;

  device::Device& device_;
  const ComputePlace place_;
  Group all_;
  Group host_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_CHUNK_COLLECTIVES_H_
