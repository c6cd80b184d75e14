#include "collectives/gloo/gloo_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/gloo/succession.h"
#include "collectives/reduce.h"

namespace geminid::collectives {
namespace {

// Memory for what the peers send to be reduced; longer slices are reduced piece by piece.
constexpr size_t kScratchBytes = 64 * 1024 * 1024;

void Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

GlooBackend::GlooBackend(std::unique_ptr<GlooLinks> links, absl::Duration timeout)
    : CommunicatorBackend(links->options().rank,
                          static_cast<int>(links->options().world_ranks.size()), timeout),
      links_(std::move(links)) {}

absl::Status GlooBackend::DoAllGather(const Operation& operation, const std::byte* in,
                                      std::byte* out, const Partition& parts) {
  const size_t width = SizeOf(operation.dtype);
  GlooLinks::Parcels parcels{.sent = operation, .expected = operation};
  for (const int r : Peers()) {
    parcels.sends.push_back({r, in, parts.Count(Rank()) * width});
    parcels.receives.push_back({r, out + parts.Begin(r) * width, parts.Count(r) * width});
  }
  Copy(out + parts.Begin(Rank()) * width, in, parts.Count(Rank()) * width);
  return Exchange(parcels);
}

absl::Status GlooBackend::DoReduceScatter(const Operation& operation, const std::byte* in,
                                          std::byte* out, const Partition& parts) {
  const size_t width = SizeOf(operation.dtype);
  const auto peers = static_cast<size_t>(std::max(1, WorldSize() - 1));
  const size_t piece = std::max<size_t>(1, kScratchBytes / peers / width);
  size_t begin = 0;
  do {
    absl::Status status = ReducePiece(operation, in, out, parts, begin, piece);
    if (!status.ok()) return status;
    begin += piece;
  } while (begin < parts.MaxCount());
  return absl::OkStatus();
}

absl::Status GlooBackend::DoBroadcast(const Operation& operation, std::byte* inout) {
  const size_t bytes = operation.count * SizeOf(operation.dtype);
  const int root = operation.root_or_tag;
  GlooLinks::Parcels parcels{.sent = operation, .expected = operation};
  if (Rank() == root) {
    for (const int r : Peers()) parcels.sends.push_back({r, inout, bytes});
  } else {
    parcels.receives.push_back({root, inout, bytes});
  }
  return Exchange(parcels);
}

absl::Status GlooBackend::DoAllToAll(const Operation& operation, const std::byte* in,
                                     std::byte* out) {
  const size_t bytes = operation.count * SizeOf(operation.dtype);
  GlooLinks::Parcels parcels{.sent = operation, .expected = operation};
  for (const int r : Peers()) {
    parcels.sends.push_back({r, in + static_cast<size_t>(r) * bytes, bytes});
    parcels.receives.push_back({r, out + static_cast<size_t>(r) * bytes, bytes});
  }
  const size_t own = static_cast<size_t>(Rank()) * bytes;
  Copy(out + own, in + own, bytes);
  return Exchange(parcels);
}

absl::Status GlooBackend::DoBarrier(const Operation& operation) {
  GlooLinks::Parcels parcels{.sent = operation, .expected = operation};
  for (const int r : Peers()) {
    parcels.sends.push_back({.peer = r});
    parcels.receives.push_back({.peer = r});
  }
  return Exchange(parcels);
}

absl::Status GlooBackend::DoSendReceive(const Message* send, const Message* receive) {
  GlooLinks::Parcels parcels;
  if (send != nullptr) {
    parcels.sent = send->operation;
    parcels.sends.push_back({send->peer, send->in, send->bytes()});
  }
  if (receive != nullptr) {
    parcels.expected = receive->operation;
    parcels.receives.push_back({receive->peer, receive->out, receive->bytes()});
  }
  return Exchange(parcels);
}

absl::StatusOr<std::unique_ptr<GlooBackend>> GlooBackend::ConnectSubset(
    const std::string& key, std::span<const int> ranks) {
  GlooLinks::Options options = links_->options();
  options.group = absl::StrCat(options.group, "/", key);
  options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), Rank()) - ranks.begin());
  options.world_ranks.clear();
  for (const int r : ranks) {
    options.world_ranks.push_back(links_->options().world_ranks[static_cast<size_t>(r)]);
  }
  options.look = [this] { return links_->failure(); };  // who has failed does not come
  auto links = GlooLinks::Connect(std::move(options));
  if (!links.ok()) return links.status();
  return std::make_unique<GlooBackend>(*std::move(links), timeout());
}

absl::StatusOr<std::unique_ptr<Communicator>> GlooBackend::DoSubset(const std::string& key,
                                                                    std::span<const int> ranks) {
  auto subset = ConnectSubset(key, ranks);
  if (!subset.ok()) return subset.status();
  return std::make_unique<Communicator>(*std::move(subset));
}

absl::StatusOr<GlooBackend::Remainder> GlooBackend::ConnectSurvivors() {
  const base::Deadline deadline = base::Deadline::In(timeout());
  const GlooLinks::Options& group = links_->options();
  const auto is_gone = [&](int rank) {
    return group.member->IsDead(group.world_ranks[static_cast<size_t>(rank)]) ||
           links_->left().contains(rank);
  };
  if (is_gone(Rank())) return ForsakenError(Rank());
  GEMINID_ASSIGN_OR_RETURN(Succession::Outcome outcome,
                           group.member->succession().Meet({.group = group.group,
                                                            .world_ranks = group.world_ranks,
                                                            .rank = Rank(),
                                                            .is_gone = is_gone,
                                                            .timeout = timeout()}));
  const auto own = std::find(outcome.ranks.begin(), outcome.ranks.end(), Rank());
  GEMINID_ASSIGN_OR_RETURN(
      auto backend,
      Connect(static_cast<int>(own - outcome.ranks.begin()), static_cast<int>(outcome.ranks.size()),
              {.host = outcome.host,
               .port = outcome.port,
               .job = absl::StrCat(group.member->job(), "/", group.group, "/survivors"),
               .timeout = timeout(),
               .connect_timeout = absl::FromChrono(deadline.Left()),
               .silence = group.member->silence(),
               .interface_address = group.member->address(),
               .listener = std::move(outcome.listener)}));
  return Remainder{std::move(backend), std::move(outcome.ranks)};
}

absl::StatusOr<Survivors> GlooBackend::DoShrink() {
  GEMINID_ASSIGN_OR_RETURN(Remainder left, ConnectSurvivors());
  return Survivors{std::make_unique<Communicator>(std::move(left.backend)), std::move(left.ranks)};
}

std::vector<int> GlooBackend::Peers() const {
  std::vector<int> peers;
  for (int step = 1; step < WorldSize(); ++step) peers.push_back((Rank() + step) % WorldSize());
  return peers;
}

absl::Status GlooBackend::ReducePiece(const Operation& operation, const std::byte* in,
                                      std::byte* out, const Partition& parts, size_t begin,
                                      size_t piece) {
  const size_t width = SizeOf(operation.dtype);
  auto length = [&](int rank) {
    return begin >= parts.Count(rank) ? 0 : std::min(piece, parts.Count(rank) - begin);
  };
  const size_t own_bytes = length(Rank()) * width;
  const size_t needed = own_bytes * static_cast<size_t>(WorldSize());
  if (scratch_.size() < needed) scratch_.resize(needed);
  std::vector<const std::byte*> inputs(static_cast<size_t>(WorldSize()));
  inputs[static_cast<size_t>(Rank())] = in + (parts.Begin(Rank()) + begin) * width;
  GlooLinks::Parcels parcels{.sent = operation, .expected = operation};
  for (const int r : Peers()) {
    std::byte* from_peer = scratch_.data() + static_cast<size_t>(r) * own_bytes;
    inputs[static_cast<size_t>(r)] = from_peer;
    parcels.sends.push_back({r, in + (parts.Begin(r) + begin) * width, length(r) * width});
    parcels.receives.push_back({r, from_peer, own_bytes});
  }
  GEMINID_RETURN_IF_ERROR(Exchange(parcels));
  ReduceInOrder(inputs, out + begin * width, length(Rank()), operation.dtype, operation.reduce,
                operation.scale);
  return absl::OkStatus();
}

absl::Status GlooBackend::Exchange(const GlooLinks::Parcels& parcels) {
  GEMINID_RETURN_IF_ERROR(links_->Exchange(parcels, timeout()));
  Count(parcels);
  return absl::OkStatus();
}

void GlooBackend::Count(const GlooLinks::Parcels& parcels) {
  for (const auto& send : parcels.sends) CountSent(send.peer, send.bytes);
  for (const auto& receive : parcels.receives) CountReceived(receive.peer, receive.bytes);
}

uint64_t GlooBackend::NetworkReceived() const {
  uint64_t bytes = 0;
  for (const PeerTraffic& peer : CountedTraffic()) bytes += peer.bytes_received;
  return bytes;
}

}  // namespace geminid::collectives
