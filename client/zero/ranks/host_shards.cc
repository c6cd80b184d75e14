#include "client/zero/ranks/host_shards.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"

namespace geminid::zero {
namespace {

// Checks that all hosts have the same number of ranks, and that there are several hosts.
absl::Status CheckHosts(collectives::Communicator& all, int ranks_here, int rank_here) {
  std::vector<int32_t> ends = {ranks_here, -ranks_here};
  GEMINID_RETURN_IF_ERROR(all.AllReduce(ends, ends, collectives::ReduceOp::kMin));
  std::vector<int32_t> hosts = {rank_here == 0 ? 1 : 0};
  GEMINID_RETURN_IF_ERROR(all.AllReduce(hosts, hosts, collectives::ReduceOp::kSum));
  const int least = ends[0];
  const int most = -ends[1];
  if (least != most) {
    return absl::InvalidArgumentError(
        absl::StrCat("sharding weights within hosts needs the same number of ranks on each host, "
                     "and these have ",
                     least, " to ", most,
                     "; start as many ranks on each host, or leave Options::host_ranks out"));
  }
  if (hosts[0] * least != all.WorldSize()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Options::host_ranks are ", hosts[0], " groups of ", least, " of the engine's ",
        all.WorldSize(), " ranks; each rank must be in one of them"));
  }
  if (hosts[0] > 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "Options::host_ranks are all ranks of the engine, and one host has no traffic between hosts "
      "to save; leave them out");
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostShards>> HostShards::Connect(
    collectives::Communicator& all, collectives::Communicator& host_ranks) {
  GEMINID_RETURN_IF_ERROR(CheckHosts(all, host_ranks.WorldSize(), host_ranks.Rank()));
  GEMINID_ASSIGN_OR_RETURN(auto ranks, host_ranks.Duplicate("geminid-host"));
  ranks->SetTimeout(all.timeout());
  return std::unique_ptr<HostShards>(new HostShards(std::move(ranks)));
}

absl::Status HostShards::ConnectDevices(device::Device* device, uint64_t scratch_bytes) {
  if (ranks_->WorldSize() == 1) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(auto control, ranks_->Duplicate("geminid-host-devices"));
  control->SetTimeout(ranks_->timeout());
  GEMINID_ASSIGN_OR_RETURN(device_ranks_, device->ConnectRanks(std::move(control), scratch_bytes));
  return absl::OkStatus();
}

uint64_t HostShards::BytesFor(const Layout& layout) const {
  const auto ranks = static_cast<uint64_t>(ranks_->WorldSize());
  uint64_t bytes = 0;
  for (const ChunkShape& chunk : layout.chunks) bytes += base::RoundUpToPage(chunk.bytes() / ranks);
  return bytes;
}

absl::Status HostShards::Allocate(Session* session, const Layout& layout) {
  const auto ranks = static_cast<uint64_t>(ranks_->WorldSize());
  std::vector<ChunkSpec> specs;
  uint64_t bytes = 0;
  for (const ChunkShape& chunk : layout.chunks) {
    const auto number = static_cast<uint32_t>(specs.size());
    specs.push_back({absl::StrCat(NameOf(layout, number), ", of the host"), ChunkKind::kGeneric,
                     chunk.bytes() / ranks});
    bytes += specs.back().bytes;
  }
  absl::StatusOr<std::vector<ChunkHandle>> handles = session->Allocate(specs);
  if (absl::IsResourceExhausted(handles.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("weights sharded within the host take ", base::FormatBytes(bytes),
                     " of host memory of each of its ", ranks,
                     " ranks; give the ranks more, or leave Options::host_ranks out: ",
                     std::string(handles.status().message())));
  }
  if (!handles.ok()) return handles.status();
  session_ = session;
  kept_ = *std::move(handles);
  // The memory holds values, so its state must not be FREE.
  for (const ChunkHandle& kept : kept_) session_->Transition(kept.id, ChunkState::kHold);
  return absl::OkStatus();
}

absl::Status HostShards::Free() {
  std::vector<ChunkId> ids;
  for (const ChunkHandle& kept : std::exchange(kept_, {})) ids.push_back(kept.id);
  return ids.empty() ? absl::OkStatus() : session_->Free(ids);
}

uint64_t HostShards::bytes() const {
  uint64_t bytes = 0;
  for (const ChunkHandle& kept : kept_) bytes += kept.bytes;
  return bytes;
}

void HostShards::Abort(const std::string& reason) {
  ranks_->Abort(reason);
  if (device_ranks_ != nullptr) device_ranks_->Abort(reason);
}

uint64_t HostShards::received_bytes() const {
  uint64_t bytes = 0;
  for (const collectives::Communicator* ranks : {ranks_.get(), device_ranks_.get()}) {
    if (ranks == nullptr) continue;
    for (const collectives::PeerTraffic& peer : ranks->Stats().peers) bytes += peer.bytes_received;
  }
  return bytes;
}

}  // namespace geminid::zero
