#include "client/zero/ranks/chunk_collectives.h"

#include <algorithm>

#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/data_types.h"

namespace geminid::zero {

ChunkCollectives::ChunkCollectives(const EngineSetup& setup, const ComputePlace& place,
                                   collectives::Communicator* ranks,
                                   collectives::Communicator* device_ranks, HostShards* host_shards)
    : device_(*DeviceOf(*setup.session)), place_(place) {
  uint64_t largest_bytes = 0;
  for (const ChunkShape& chunk : setup.layout.chunks) {
    largest_bytes = std::max(largest_bytes, chunk.bytes());
  }
  const auto group = [&](collectives::Communicator* of, collectives::Communicator* devices) {
    return Group{of, devices,
                 std::make_unique<HostExchange>(setup.session, place, of, largest_bytes)};
  };
  all_ = group(ranks, device_ranks);
  if (host_shards != nullptr) host_ = group(&host_shards->ranks(), host_shards->device_ranks());
}

const ChunkCollectives::Group& ChunkCollectives::Label(const Chunk& chunk) const {
  const Group& group = chunk.within_host ? host_ : all_;
  group.ranks->SetLabel(chunk.label);
  if (group.device_ranks != nullptr) group.device_ranks->SetLabel(chunk.label);
  return group;
}

absl::StatusOr<ChunkCollectives::Ranks> ChunkCollectives::RanksFor(const Group& group,
                                                                   std::byte* data) const {
  std::byte* const there = device_.HostAddress(data);
  if (there != nullptr) return Ranks{group.ranks, there};
  if (group.device_ranks == nullptr) return Ranks{};
  GEMINID_RETURN_IF_ERROR(place_.Finish());  // waits for operations queued on the chunk
  return Ranks{group.device_ranks, data};
}

absl::Status ChunkCollectives::AllGather(const Chunk& chunk) {
  const Group& group = Label(chunk);
  const auto count = static_cast<uint64_t>(group.ranks->WorldSize());
  if (count == 1) return absl::OkStatus();
  const collectives::DType type = DTypeOf(*chunk.shape);
  const uint64_t elements = chunk.shape->elements;
  const uint64_t own = static_cast<uint64_t>(group.ranks->Rank()) * chunk.shape->bytes() / count;
  GEMINID_ASSIGN_OR_RETURN(const Ranks ranks, RanksFor(group, chunk.data));
  if (ranks.communicator == nullptr) {
    return group.exchange->AllGather({chunk.id, chunk.data, elements, type});
  }
  return ranks.communicator->AllGather({ranks.data + own, elements / count, type},
                                       {ranks.data, elements, type});
}

absl::Status ChunkCollectives::Average(const Chunk& chunk) {
  const Group& group = Label(chunk);
  const int world_size = group.ranks->WorldSize();
  if (world_size == 1) return absl::OkStatus();
  const collectives::DType type = DTypeOf(*chunk.shape);
  const uint64_t elements = chunk.shape->elements;
  const auto count = static_cast<uint64_t>(world_size);
  const uint64_t own = static_cast<uint64_t>(group.ranks->Rank()) * chunk.shape->bytes() / count;
  GEMINID_ASSIGN_OR_RETURN(const Ranks ranks, RanksFor(group, chunk.data));
  if (ranks.communicator == nullptr) {
    return group.exchange->Average({chunk.id, chunk.data, elements, type});
  }
  return ranks.communicator->ReduceScatter({ranks.data, elements, type},
                                           {ranks.data + own, elements / count, type},
                                           collectives::ReduceOp::kSum, {1.0 / world_size});
}

}  // namespace geminid::zero
