#include "collectives/hierarchical/hierarchical_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/hierarchical/link_probe.h"
#include "collectives/shm/segment.h"

namespace geminid::collectives {
namespace {

ExchangeMessages Empty(const Operation& operation) {
  return {.sent = operation, .expected = operation};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> HierarchicalBackend::Make(
    std::unique_ptr<TcpBackend> network, std::span<const std::string> host_by_rank,
    const std::string& name, const HierarchyOptions& given) {
  HierarchyOptions options = given;
  if (options.shm.books == nullptr) options.shm.books = std::make_shared<SegmentBooks>();
  const int rank = network->Rank();
  const std::optional<Hosts> hosts = Hosts::Of(host_by_rank);
  if (!hosts || hosts->most_ranks() == 1 || hosts->most_ranks() > kMaxShmRanks) {
    return std::make_unique<Communicator>(std::move(network));
  }
  ShmOptions shm = options.shm;
  shm.look = [&network] { return network->links().failure(); };  // while it connects
  // With one host the network group ends once all ranks have come.
  if (hosts->count == 1) return ConnectShm(name, rank, hosts->ranks_each, shm);
  shm.first_rank = hosts->RankAt(hosts->HostOf(rank), 0);
  GEMINID_ASSIGN_OR_RETURN(
      auto host, ConnectShmBackend(absl::StrCat(name, "/host ", hosts->HostOf(rank)),
                                   hosts->LocalOf(rank), hosts->SizeOf(hosts->HostOf(rank)), shm));
  std::unique_ptr<HierarchicalBackend> backend(new HierarchicalBackend(
      std::move(network), std::move(host), *hosts, host_by_rank, name, options));
  if (!options.costs.has_value()) GEMINID_RETURN_IF_ERROR(backend->LearnCosts());
  return std::make_unique<Communicator>(std::move(backend));
}

HierarchicalBackend::HierarchicalBackend(std::unique_ptr<TcpBackend> network,
                                         std::unique_ptr<CommunicatorBackend> host,
                                         const Hosts& hosts,
                                         std::span<const std::string> host_by_rank,
                                         std::string name, const HierarchyOptions& options)
    : CommunicatorBackend(network->Rank(), network->WorldSize(), network->timeout()),
      host_by_rank_(host_by_rank.begin(), host_by_rank.end()),
      name_(std::move(name)),
      options_(options),
      costs_(options.costs),
      levels_(std::move(network), std::move(host), hosts),
      chain_(&levels_) {}

Partition HierarchicalBackend::PiecesOf(const Partition& parts, int host, int other) const {
  const Hosts& hosts = levels_.hosts();
  const size_t count = parts.Begin(hosts.FirstOf(host + 1)) - parts.Begin(hosts.FirstOf(host));
  return Partition(count, std::min(hosts.SizeOf(host), hosts.SizeOf(other)));
}

absl::Status HierarchicalBackend::DoAllGather(const Operation& operation, const std::byte* in,
                                              std::byte* out, const Partition& parts) {
  const Hosts& hosts = levels_.hosts();
  const size_t width = SizeOf(operation.dtype);
  // This rank's piece of a host's elements, when they are divided into `pieces`.
  const auto piece = [&](int of_host, const Partition& pieces) {
    return out + (parts.Begin(hosts.FirstOf(of_host)) + pieces.Begin(levels_.local())) * width;
  };
  const auto within = [&](int of_host, const std::byte* own) {
    const Partition pieces = PiecesOf(parts, of_host, levels_.host());
    std::byte* const all = out + parts.Begin(hosts.FirstOf(of_host)) * width;
    return levels_.Inside([&](auto& host) {
      return host.DoAllGather(operation, own == nullptr ? piece(of_host, pieces) : own, all,
                              pieces);
    });
  };
  GEMINID_RETURN_IF_ERROR(levels_.Arrive(operation, timeout()));
  GEMINID_RETURN_IF_ERROR(within(levels_.host(), in));
  ExchangeMessages messages = Empty(operation);
  for (int step = 1; step < hosts.count; ++step) {
    const int other = (levels_.host() + step) % hosts.count;
    if (levels_.local() >= hosts.SizeOf(other)) continue;
    const Partition ours = PiecesOf(parts, levels_.host(), other);
    const Partition theirs = PiecesOf(parts, other, levels_.host());
    const int counterpart = levels_.Counterpart(other);
    messages.sends.push_back(
        {counterpart, piece(levels_.host(), ours), ours.Count(levels_.local()) * width});
    messages.receives.push_back(
        {counterpart, piece(other, theirs), theirs.Count(levels_.local()) * width});
  }
  GEMINID_RETURN_IF_ERROR(levels_.Between(messages));
  for (int step = 1; step < hosts.count; ++step) {
    GEMINID_RETURN_IF_ERROR(within((levels_.host() + step) % hosts.count, nullptr));
  }
  CountAllGather(parts, width);
  return absl::OkStatus();
}

absl::Status HierarchicalBackend::LearnCosts() {
  auto costs = MeasureLinks(levels_, options_.shm.connect_timeout);
  if (costs.ok()) {
    costs_ = *costs;
    return absl::OkStatus();
  }
  // All ranks have met: a failure now fails the group, as it would a moment later.
  return health().ok() ? costs.status() : absl::OkStatus();
}

bool HierarchicalBackend::TakesChain(const Operation& operation) const {
  if (!costs_.has_value()) return false;  // the group has failed
  const AlgorithmSeconds seconds = SecondsOf(operation, levels_.hosts(), Lanes(), *costs_);
  return seconds.chain < seconds.flat;
}

uint64_t HierarchicalBackend::NetworkReceived() const {
  uint64_t bytes = 0;
  const std::vector<PeerTraffic> peers = levels_.network().CountedTraffic();
  for (size_t r = 0; r < peers.size(); ++r) {
    const bool here = levels_.hosts().HostOf(static_cast<int>(r)) == levels_.host();
    if (!here) bytes += peers[r].bytes_received;
  }
  return bytes;
}

CommunicatorStats HierarchicalBackend::Stats() const {
  CommunicatorStats stats = CommunicatorBackend::Stats();
  for (size_t i = 0; i < chained_.size(); ++i) {
    stats.chained[i] = chained_[i].load(std::memory_order_relaxed);
  }
  stats.link_costs = costs_;
  return stats;
}

absl::Status HierarchicalBackend::DoReduceScatter(const Operation& operation, const std::byte* in,
                                                  std::byte* out, const Partition& parts) {
  const Hosts& hosts = levels_.hosts();
  const size_t width = SizeOf(operation.dtype);
  GEMINID_RETURN_IF_ERROR(levels_.Arrive(operation, timeout()));
  CountReduceScatter(parts, width);
  if (!TakesChain(operation)) {
    return levels_.network().DoReduceScatter(operation, in, out, parts);
  }
  const ChainPlan plan = PlanOf(operation, hosts, Lanes());
  const auto deliver = [&](size_t block, const std::byte* sum) {
    ChainPlan::Lane lane = plan.LaneOf(block, levels_.local());
    if (plan.is_whole()) {
      lane = {.begin = plan.LaneOf(block, 0).begin, .count = plan.PartsOf(block).total()};
      std::byte* const room = Room(lane.count * width);
      GEMINID_RETURN_IF_ERROR(GatherBlock(operation, plan, block, sum, room));
      sum = room;
    }
    // The part of the lane that is in this rank's slice.
    const size_t own = parts.Begin(Rank());
    const size_t begin = std::max(lane.begin, own);
    const size_t end = std::min(lane.begin + lane.count, own + parts.Count(Rank()));
    if (begin >= end) return absl::OkStatus();
    std::memcpy(out + (begin - own) * width, sum + (begin - lane.begin) * width,
                (end - begin) * width);
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(chain_.Run(operation, plan, in, deliver));
  CountChained(operation.kind);
  return absl::OkStatus();
}

absl::Status HierarchicalBackend::GatherBlock(const Operation& operation, const ChainPlan& plan,
                                              size_t block, const std::byte* lane, std::byte* out) {
  return levels_.Inside(
      [&](auto& host) { return host.DoAllGather(operation, lane, out, plan.PartsOf(block)); });
}

absl::Status HierarchicalBackend::DoAllReduce(const Operation& operation, const std::byte* in,
                                              std::byte* out) {
  const size_t width = SizeOf(operation.dtype);
  if (operation.count * width <= kDirectAllReduceBytes || !TakesChain(operation)) {
    return CommunicatorBackend::DoAllReduce(operation, in, out);
  }
  const ChainPlan plan = PlanOf(operation, levels_.hosts(), Lanes());
  const auto deliver = [&](size_t block, const std::byte* sum) {
    return GatherBlock(operation, plan, block, sum, out + plan.LaneOf(block, 0).begin * width);
  };
  GEMINID_RETURN_IF_ERROR(levels_.Arrive(operation, timeout()));
  GEMINID_RETURN_IF_ERROR(chain_.Run(operation, plan, in, deliver));
  CountChained(operation.kind);
  const Partition parts(operation.count, WorldSize());
  CountReduceScatter(parts, width);
  CountAllGather(parts, width);
  return absl::OkStatus();
}

absl::Status HierarchicalBackend::DoReduce(const Operation& operation, const std::byte* in,
                                           std::byte* out) {
  if (!TakesChain(operation)) return CommunicatorBackend::DoReduce(operation, in, out);
  const int root = operation.root_or_tag;
  const size_t width = SizeOf(operation.dtype);
  const ChainPlan plan = PlanOf(operation, levels_.hosts(), Lanes());
  const auto deliver = [&](size_t block, const std::byte* sum) {
    std::byte* to = Rank() == root ? out + plan.LaneOf(block, 0).begin * width
                                   : Room(plan.PartsOf(block).total() * width);
    return GatherBlock(operation, plan, block, sum, to);
  };
  GEMINID_RETURN_IF_ERROR(levels_.Arrive(operation, timeout()));
  GEMINID_RETURN_IF_ERROR(chain_.Run(operation, plan, in, deliver));
  CountChained(operation.kind);
  CountToRoot(root, operation.count * width);
  return absl::OkStatus();
}

// Through memory on the root's host; from there each of its ranks sends one lane.
absl::Status HierarchicalBackend::DoBroadcast(const Operation& operation, std::byte* inout) {
  const Hosts& hosts = levels_.hosts();
  const size_t width = SizeOf(operation.dtype);
  const int root = operation.root_or_tag;
  const Partition lanes(operation.count, hosts.ranks_each);
  std::byte* lane = inout + lanes.Begin(levels_.local()) * width;
  const size_t lane_bytes = lanes.Count(levels_.local()) * width;
  GEMINID_RETURN_IF_ERROR(levels_.Arrive(operation, timeout()));
  ExchangeMessages messages = Empty(operation);
  if (levels_.host() == hosts.HostOf(root)) {
    Operation on_host = operation;
    on_host.root_or_tag = hosts.LocalOf(root);
    GEMINID_RETURN_IF_ERROR(
        levels_.Inside([&](auto& host) { return host.DoBroadcast(on_host, inout); }));
    for (int step = 1; step < hosts.count && levels_.has_counterparts(); ++step) {
      const int counterpart = levels_.Counterpart((levels_.host() + step) % hosts.count);
      messages.sends.push_back({counterpart, lane, lane_bytes});
    }
    GEMINID_RETURN_IF_ERROR(levels_.Between(messages));
    GEMINID_RETURN_IF_ERROR(Depart());
  } else {
    if (levels_.has_counterparts()) {
      messages.receives.push_back({levels_.Counterpart(hosts.HostOf(root)), lane, lane_bytes});
    }
    GEMINID_RETURN_IF_ERROR(levels_.Between(messages));
    GEMINID_RETURN_IF_ERROR(levels_.Inside(
        [&](auto& host) { return host.DoAllGather(operation, lane, inout, lanes); }));
  }
  CountFromRoot(root, operation.count * width);
  return absl::OkStatus();
}

absl::Status HierarchicalBackend::DoAllToAll(const Operation& operation, const std::byte* in,
                                             std::byte* out) {
  const Hosts& hosts = levels_.hosts();
  const size_t pair = operation.count * SizeOf(operation.dtype);
  const size_t per_host = pair * static_cast<size_t>(hosts.ranks_each);
  const auto offset = [&](int host) { return static_cast<size_t>(hosts.FirstOf(host)) * pair; };
  std::byte* const room = hosts.are_even() ? Room(offset(hosts.count)) : nullptr;
  // Collects what this host's ranks have for rank `local` of a host at their own rank `local`.
  const auto collect = [&](int for_host, std::byte* to) {
    return levels_.Inside(
        [&](auto& host) { return host.DoAllToAll(operation, in + offset(for_host), to); });
  };
  GEMINID_RETURN_IF_ERROR(levels_.Arrive(operation, timeout()));
  GEMINID_RETURN_IF_ERROR(collect(levels_.host(), out + offset(levels_.host())));
  ExchangeMessages messages = Empty(operation);
  for (int step = 1; step < hosts.count; ++step) {
    const int other = (levels_.host() + step) % hosts.count;
    if (hosts.are_even()) {
      GEMINID_RETURN_IF_ERROR(collect(other, room + offset(other)));
      messages.sends.push_back({levels_.Counterpart(other), room + offset(other), per_host});
      messages.receives.push_back({levels_.Counterpart(other), out + offset(other), per_host});
      continue;
    }
    for (int r = hosts.FirstOf(other); r < hosts.FirstOf(other + 1); ++r) {
      const size_t place = static_cast<size_t>(r) * pair;
      messages.sends.push_back({r, in + place, pair});
      messages.receives.push_back({r, out + place, pair});
    }
  }
  GEMINID_RETURN_IF_ERROR(levels_.Between(messages));
  for (int r = 0; r < WorldSize(); ++r) {
    if (r == Rank()) continue;
    CountSent(r, pair);
    CountReceived(r, pair);
  }
  return absl::OkStatus();
}

absl::Status HierarchicalBackend::DoBarrier(const Operation& operation) {
  GEMINID_RETURN_IF_ERROR(levels_.Arrive(operation, timeout()));
  ExchangeMessages messages = Empty(operation);
  for (int step = 1; step < levels_.hosts().count && levels_.has_counterparts(); ++step) {
    const int counterpart = levels_.Counterpart((levels_.host() + step) % levels_.hosts().count);
    messages.sends.push_back({.peer = counterpart});
    messages.receives.push_back({.peer = counterpart});
  }
  GEMINID_RETURN_IF_ERROR(levels_.Between(messages));
  return Depart();
}

absl::Status HierarchicalBackend::Depart() {
  if (levels_.hosts().are_even()) return absl::OkStatus();
  return levels_.Inside([](auto& host) { return host.DoBarrier({.kind = OpKind::kBarrier}); });
}

std::byte* HierarchicalBackend::Room(size_t bytes) {
  if (room_.size() < bytes) room_.resize(bytes);
  return room_.data();
}

absl::Status HierarchicalBackend::DoSendReceive(const Message* send, const Message* receive) {
  const Hosts& hosts = levels_.hosts();
  const auto is_inside = [&](const Message* message) {
    return message != nullptr && hosts.HostOf(message->peer) == levels_.host();
  };
  Message inner_send, inner_receive;
  ExchangeMessages messages;
  if (is_inside(send)) {
    inner_send = *send;
    inner_send.peer = hosts.LocalOf(send->peer);
  } else if (send != nullptr) {
    messages.sent = send->operation;
    messages.sends.push_back({send->peer, send->in, send->bytes()});
  }
  if (is_inside(receive)) {
    inner_receive = *receive;
    inner_receive.peer = hosts.LocalOf(receive->peer);
  } else if (receive != nullptr) {
    messages.expected = receive->operation;
    messages.receives.push_back({receive->peer, receive->out, receive->bytes()});
  }
  const HierarchyLevels::OverlappedWork inside = [&]() -> absl::Status {
    const Message* sending = is_inside(send) ? &inner_send : nullptr;
    const Message* receiving = is_inside(receive) ? &inner_receive : nullptr;
    return levels_.Inside([&](auto& host) { return host.DoSendReceive(sending, receiving); });
  };
  levels_.Allow(timeout());
  const bool has_inside = is_inside(send) || is_inside(receive);
  GEMINID_RETURN_IF_ERROR(
      levels_.Between(messages, has_inside ? inside : HierarchyLevels::OverlappedWork()));
  if (send != nullptr) CountSent(send->peer, send->bytes());
  if (receive != nullptr) CountReceived(receive->peer, receive->bytes());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> HierarchicalBackend::DoSubset(
    const std::string& key, std::span<const int> ranks, Messages messages) {
  ShmOptions shm = options_.shm;
  if (messages == Messages::kSmall) shm.UseLittleMemory(ranks.size());
  std::vector<std::string> hosts;
  for (const int rank : ranks) hosts.push_back(host_by_rank_[static_cast<size_t>(rank)]);
  const std::string name = absl::StrCat(name_, "/", key);
  if (std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) == hosts.end()) {
    const auto own = std::find(ranks.begin(), ranks.end(), Rank()) - ranks.begin();
    shm.look = [this] { return levels_.network().links().failure(); };
    return ConnectShm(name, static_cast<int>(own), static_cast<int>(ranks.size()), shm);
  }
  GEMINID_ASSIGN_OR_RETURN(auto network, levels_.network().ConnectSubset(key, ranks));
  HierarchyOptions options = options_;
  options.costs = costs_;
  options.shm = shm;
  return Make(std::move(network), hosts, name, options);
}

absl::StatusOr<Survivors> HierarchicalBackend::DoShrink() {
  levels_.network().SetTimeout(timeout());
  GEMINID_ASSIGN_OR_RETURN(TcpBackend::Remainder left, levels_.network().ConnectSurvivors());
  std::vector<std::string> hosts;
  for (const int rank : left.ranks) hosts.push_back(host_by_rank_[static_cast<size_t>(rank)]);
  HierarchyOptions options = options_;
  options.shm.connect_timeout = std::min(options.shm.connect_timeout, timeout());
  const std::string name = absl::StrCat(name_, "/survivors/", absl::StrJoin(left.ranks, "."));
  GEMINID_ASSIGN_OR_RETURN(auto communicator, Make(std::move(left.backend), hosts, name, options));
  return Survivors{std::move(communicator), std::move(left.ranks)};
}

void HierarchicalBackend::CountAllGather(const Partition& parts, size_t width) {
  for (int r = 0; r < WorldSize(); ++r) {
    if (r == Rank()) continue;
    CountSent(r, parts.Count(Rank()) * width);
    CountReceived(r, parts.Count(r) * width);
  }
}

void HierarchicalBackend::CountReduceScatter(const Partition& parts, size_t width) {
  for (int r = 0; r < WorldSize(); ++r) {
    if (r == Rank()) continue;
    CountSent(r, parts.Count(r) * width);
    CountReceived(r, parts.Count(Rank()) * width);
  }
}

void HierarchicalBackend::CountFromRoot(int root, size_t bytes) {
  if (Rank() != root) return CountReceived(root, bytes);
  for (int r = 0; r < WorldSize(); ++r) {
    if (r != root) CountSent(r, bytes);
  }
}

void HierarchicalBackend::CountToRoot(int root, size_t bytes) {
  if (Rank() != root) return CountSent(root, bytes);
  for (int r = 0; r < WorldSize(); ++r) {
    if (r != root) CountReceived(r, bytes);
  }
}

}  // namespace geminid::collectives
