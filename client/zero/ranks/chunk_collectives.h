// Collectives on chunks of the device: over the ranks' own links if these reach device memory, else
// by way of host memory.
#ifndef GEMINID_CLIENT_ZERO_RANKS_CHUNK_COLLECTIVES_H_
#define GEMINID_CLIENT_ZERO_RANKS_CHUNK_COLLECTIVES_H_

#include <cstddef>
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

// Used by one thread.
class ChunkCollectives {
 public:
  // `ranks` and `device_ranks` connect all ranks; `host_shards` connects those of this host. The
  // last two may be null. All arguments outlive this object. `place`: operations on the device.
  ChunkCollectives(const EngineSetup& setup, const ComputePlace& place,
                   collectives::Communicator* ranks, collectives::Communicator* device_ranks,
                   HostShards* host_shards);

  // The chunk of one collective. If ranks disagree on which chunk it is, their labels differ, so no
  // rank takes a chunk for another one of the same size.
  struct Chunk {
    std::string label{};
    ChunkId id = kNoChunk;
    std::byte* data = nullptr;  // the whole chunk, on the device or in host memory
    const ChunkShape* shape = nullptr;
    bool within_host = false;  // among the ranks of this host alone
  };
  // Before the call only this rank's slice is valid, afterwards the whole chunk is.
  absl::Status AllGather(const Chunk& chunk);
  // This rank's slice becomes that slice of the mean over the ranks, formed in fp32 and rounded
  // once. The other slices are undefined afterwards.
  absl::Status Average(const Chunk& chunk);

 private:
  struct Group {
    collectives::Communicator* ranks = nullptr;
    collectives::Communicator* device_ranks = nullptr;  // or null
    std::unique_ptr<HostExchange> exchange{};           // null: there is no such group
  };
  // The communicator that moves device memory between the ranks, and the data's address for it.
  // Null: there is none, so the collective goes by way of the host.
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
