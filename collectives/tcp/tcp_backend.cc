#include "collectives/tcp/tcp_backend.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/reduce.h"
#include "collectives/tcp/succession.h"

namespace geminid::collectives {
namespace {

// Memory for peers' slices to be reduced; longer slices are reduced piece by piece.
constexpr size_t kScratchBytes = 64 * 1024 * 1024;

void Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectTcp(int rank, int world_size,
                                                         TcpOptions options) {
  GEMINID_ASSIGN_OR_RETURN(auto backend, TcpBackend::Connect(rank, world_size, std::move(options)));
  return std::make_unique<Communicator>(std::move(backend));
}

absl::StatusOr<std::unique_ptr<TcpBackend>> TcpBackend::Connect(int rank, int world_size,
                                                                TcpOptions options) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("communicator over TCP: rank ", rank, " of ", world_size));
  }
  const absl::Duration timeout = options.timeout, connect_timeout = options.connect_timeout;
  GEMINID_ASSIGN_OR_RETURN(auto member, Member::Join(rank, world_size, std::move(options)));
  std::vector<int> world_ranks(static_cast<size_t>(world_size));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  GEMINID_ASSIGN_OR_RETURN(auto links, TcpLinks::Connect({.member = std::move(member),
                                                          .group = "world",
                                                          .world_ranks = std::move(world_ranks),
                                                          .rank = rank,
                                                          .connect_timeout = connect_timeout}));
  return std::make_unique<TcpBackend>(std::move(links), timeout);
}

TcpBackend::TcpBackend(std::unique_ptr<TcpLinks> links, absl::Duration timeout)
    : CommunicatorBackend(links->options().rank,
                          static_cast<int>(links->options().world_ranks.size()), timeout),
      links_(std::move(links)) {}

absl::Status TcpBackend::DoAllGather(const Operation& operation, const std::byte* in,
                                     std::byte* out, const Partition& parts) {
  const size_t width = SizeOf(operation.dtype);
  ExchangeMessages messages{.sent = operation, .expected = operation};
  for (const int r : Peers()) {
    messages.sends.push_back({r, in, parts.Count(Rank()) * width});
    messages.receives.push_back({r, out + parts.Begin(r) * width, parts.Count(r) * width});
  }
  Copy(out + parts.Begin(Rank()) * width, in, parts.Count(Rank()) * width);
  return Exchange(messages);
}

absl::Status TcpBackend::DoReduceScatter(const Operation& operation, const std::byte* in,
                                         std::byte* out, const Partition& parts) {
  const size_t width = SizeOf(operation.dtype);
  const auto peers = static_cast<size_t>(std::max(1, WorldSize() - 1));
  const size_t piece = std::max<size_t>(1, kScratchBytes / peers / width);
  size_t begin = 0;
  do {
    GEMINID_RETURN_IF_ERROR(ReducePiece(operation, in, out, parts, begin, piece));
    begin += piece;
  } while (begin < parts.MaxCount());
  return absl::OkStatus();
}

absl::Status TcpBackend::DoBroadcast(const Operation& operation, std::byte* inout) {
  const size_t bytes = operation.count * SizeOf(operation.dtype);
  const int root = operation.root_or_tag;
  ExchangeMessages messages{.sent = operation, .expected = operation};
  if (Rank() == root) {
    for (const int r : Peers()) messages.sends.push_back({r, inout, bytes});
  } else {
    messages.receives.push_back({root, inout, bytes});
  }
  return Exchange(messages);
}

absl::Status TcpBackend::DoAllToAll(const Operation& operation, const std::byte* in,
                                    std::byte* out) {
  const size_t bytes = operation.count * SizeOf(operation.dtype);
  ExchangeMessages messages{.sent = operation, .expected = operation};
  for (const int r : Peers()) {
    messages.sends.push_back({r, in + static_cast<size_t>(r) * bytes, bytes});
    messages.receives.push_back({r, out + static_cast<size_t>(r) * bytes, bytes});
  }
  const size_t own = static_cast<size_t>(Rank()) * bytes;
  Copy(out + own, in + own, bytes);
  return Exchange(messages);
}

absl::Status TcpBackend::DoBarrier(const Operation& operation) {
  return links_->Meet(operation, timeout());
}

absl::Status TcpBackend::DoSendReceive(const Message* send, const Message* receive) {
  ExchangeMessages messages;
  if (send != nullptr) {
    messages.sent = send->operation;
    messages.sends.push_back({send->peer, send->in, send->bytes()});
  }
  if (receive != nullptr) {
    messages.expected = receive->operation;
    messages.receives.push_back({receive->peer, receive->out, receive->bytes()});
  }
  return Exchange(messages);
}

absl::StatusOr<std::unique_ptr<TcpBackend>> TcpBackend::ConnectSubset(const std::string& key,
                                                                      std::span<const int> ranks) {
  TcpLinks::Options options = links_->options();
  options.group = absl::StrCat(options.group, "/", key);
  options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), Rank()) - ranks.begin());
  options.world_ranks.clear();
  for (const int r : ranks) {
    options.world_ranks.push_back(links_->options().world_ranks[static_cast<size_t>(r)]);
  }
  options.look = [this] { return links_->failure(); };  // a failed rank does not come
  GEMINID_ASSIGN_OR_RETURN(auto links, TcpLinks::Connect(std::move(options)));
  return std::make_unique<TcpBackend>(std::move(links), timeout());
}

absl::StatusOr<std::unique_ptr<Communicator>> TcpBackend::DoSubset(const std::string& key,
                                                                   std::span<const int> ranks,
                                                                   Messages /*messages*/) {
  GEMINID_ASSIGN_OR_RETURN(auto subset, ConnectSubset(key, ranks));
  return std::make_unique<Communicator>(std::move(subset));
}

absl::StatusOr<TcpBackend::Remainder> TcpBackend::ConnectSurvivors() {
  const base::Deadline deadline = base::Deadline::In(timeout());
  const TcpLinks::Options& group = links_->options();
  const TcpOptions& member = group.member->options();
  if (links_->IsGone(Rank())) return PresumedDeadError(Rank());
  GEMINID_ASSIGN_OR_RETURN(SurvivorGroup next, MeetSurvivors(*links_, timeout()));
  const auto own = std::find(next.ranks.begin(), next.ranks.end(), Rank());
  GEMINID_ASSIGN_OR_RETURN(
      auto backend,
      Connect(static_cast<int>(own - next.ranks.begin()), static_cast<int>(next.ranks.size()),
              {.host = next.host,
               .port = next.port,
               .job = absl::StrCat(member.job, "/", group.group, "/survivors"),
               .timeout = timeout(),
               .connect_timeout = absl::FromChrono(deadline.Left()),
               .silence = member.silence,
               .interface_address = member.interface_address,
               .listener = std::move(next.listener)}));
  return Remainder{std::move(backend), std::move(next.ranks)};
}

absl::StatusOr<Survivors> TcpBackend::DoShrink() {
  GEMINID_ASSIGN_OR_RETURN(Remainder left, ConnectSurvivors());
  return Survivors{std::make_unique<Communicator>(std::move(left.backend)), std::move(left.ranks)};
}

std::vector<int> TcpBackend::Peers() const {
  std::vector<int> peers;
  for (int step = 1; step < WorldSize(); ++step) peers.push_back((Rank() + step) % WorldSize());
  return peers;
}

absl::Status TcpBackend::ReducePiece(const Operation& operation, const std::byte* in,
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
  ExchangeMessages messages{.sent = operation, .expected = operation};
  for (const int r : Peers()) {
    std::byte* from_peer = scratch_.data() + static_cast<size_t>(r) * own_bytes;
    inputs[static_cast<size_t>(r)] = from_peer;
    messages.sends.push_back({r, in + (parts.Begin(r) + begin) * width, length(r) * width});
    messages.receives.push_back({r, from_peer, own_bytes});
  }
  GEMINID_RETURN_IF_ERROR(Exchange(messages));
  ReduceInOrder(inputs, out + begin * width, length(Rank()), operation.dtype, operation.reduce,
                operation.scale);
  return absl::OkStatus();
}

absl::Status TcpBackend::Exchange(const ExchangeMessages& messages) {
  GEMINID_RETURN_IF_ERROR(links_->Run(messages, timeout()));
  Count(messages);
  return absl::OkStatus();
}

void TcpBackend::Count(const ExchangeMessages& messages) {
  for (const auto& send : messages.sends) CountSent(send.peer, send.bytes);
  for (const auto& receive : messages.receives) CountReceived(receive.peer, receive.bytes);
}

uint64_t TcpBackend::NetworkReceived() const {
  uint64_t bytes = 0;
  for (const PeerTraffic& peer : CountedTraffic()) bytes += peer.bytes_received;
  return bytes;
}

}  // namespace geminid::collectives
