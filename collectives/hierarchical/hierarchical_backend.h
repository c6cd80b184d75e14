// Collectives over hosts and the ranks of each.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_BACKEND_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_BACKEND_H_

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator_backend.h"
#include "collectives/hierarchical/chain.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "collectives/hierarchical/layers.h"
#include "collectives/hierarchical/way_choice.h"

namespace geminid::collectives {

// See hierarchical_communicator.h.
class HierarchicalBackend final : public CommunicatorBackend {
 public:
  // The communicator that suits these hosts: of shared memory if there is one, of TCP if no two
  // ranks that share one can make use of it, else this one. `name` is unique among the groups of
  // the machine. All ranks call it.
  static absl::StatusOr<std::unique_ptr<Communicator>> Make(
      std::unique_ptr<TcpBackend> network, std::span<const std::string> host_by_rank,
      const std::string& name, const HierarchyOptions& options);

  const char* BackendName() const override { return "hierarchical"; }
  CommunicatorStats Stats() const override;
  SegmentBooks* Books() const override { return options_.shm.books.get(); }

  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override;
  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override;
  absl::Status DoAllReduce(const Operation& operation, const std::byte* in,
                           std::byte* out) override;
  absl::Status DoReduce(const Operation& operation, const std::byte* in, std::byte* out) override;
  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override;
  absl::Status DoAllToAll(const Operation& operation, const std::byte* in, std::byte* out) override;
  absl::Status DoBarrier(const Operation& operation) override;
  absl::Status DoSendReceive(const Message* send, const Message* receive) override;
  absl::StatusOr<Survivors> DoShrink() override;
  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks) override;

  uint64_t NetworkReceived() const override;

 protected:
  void DoAbort(const absl::Status& status) override { layers_.network().links().Abort(status); }
  absl::Status DoCheckHealth() const override { return layers_.network().links().failure(); }
  std::vector<PeerTraffic> NetworkTraffic() const override {
    return layers_.network().CountedTraffic();
  }

 private:
  HierarchicalBackend(std::unique_ptr<TcpBackend> network,
                      std::unique_ptr<CommunicatorBackend> host, const Hosts& hosts,
                      std::span<const std::string> host_by_rank, std::string name,
                      const HierarchyOptions& options);

  // Measures them. It is part of connecting, and has the time that this has.
  absl::Status LearnCosts();
  bool TakesChain(const Operation& operation) const;
  LaneBytes Lanes() const { return {options_.longest_lane_bytes, options_.shortest_lane_bytes}; }
  void CountChained(OpKind kind) {
    chained_[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  }
  // What a host's ranks have of all ranks' elements, cut for another host: by rank of either, and
  // ranks that the other host has not get none. For the host itself, as its own group counts them.
  Partition PiecesOf(const Partition& parts, int host, int other) const;
  // All lanes of a block to all ranks of this host.
  absl::Status GatherBlock(const Operation& operation, const ChainPlan& plan, size_t block,
                           const std::byte* lane, std::byte* out);

  // With hosts of different sizes: a rank without twins is not done before its host's others are.
  absl::Status Depart();
  std::byte* Room(size_t bytes);

  // What the interface says that an operation moves.
  void CountAllGather(const Partition& parts, size_t width);
  void CountReduceScatter(const Partition& parts, size_t width);
  void CountFromRoot(int root, size_t bytes);
  void CountToRoot(int root, size_t bytes);

  const std::vector<std::string> host_by_rank_;
  const std::string name_;
  const HierarchyOptions options_;
  std::optional<LinkCosts> costs_;  // unset: the group failed while they were measured
  Layers layers_;
  Chain chain_;
  std::vector<std::byte> room_;
  std::array<std::atomic<uint64_t>, kOpKindCount> chained_ = {};
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_BACKEND_H_
