// Collectives over several hosts with several ranks each.
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
#include "collectives/hierarchical/algorithm_choice.h"
#include "collectives/hierarchical/chain_reduction.h"
#include "collectives/hierarchical/hierarchical_communicator.h"
#include "collectives/hierarchical/hierarchy_levels.h"

namespace geminid::collectives {

// See hierarchical_communicator.h.
class HierarchicalBackend final : public CommunicatorBackend {
 public:
  // Called by all ranks. The communicator that suits these hosts: one of shared memory for a single
  // host; of TCP if no ranks of one host can use shared memory; else this class. `name` is unique
  // among the machine's groups.
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
                                                         std::span<const int> ranks,
                                                         Messages messages) override;

  uint64_t NetworkReceived() const override;

 protected:
  void DoAbort(const absl::Status& status) override { levels_.network().links().Abort(status); }
  absl::Status DoCheckHealth() const override { return levels_.network().links().failure(); }
  std::vector<PeerTraffic> NetworkTraffic() const override {
    return levels_.network().CountedTraffic();
  }

 private:
  HierarchicalBackend(std::unique_ptr<TcpBackend> network,
                      std::unique_ptr<CommunicatorBackend> host, const Hosts& hosts,
                      std::span<const std::string> host_by_rank, std::string name,
                      const HierarchyOptions& options);

  // Measures link costs. A part of connecting, so it has the timeout of that.
  absl::Status LearnCosts();
  bool TakesChain(const Operation& operation) const;
  LaneBytes Lanes() const { return {options_.longest_lane_bytes, options_.shortest_lane_bytes}; }
  void CountChained(OpKind kind) {
    chained_[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  }
  // Divides the elements of `host`'s ranks for an exchange with `other`: one piece for each local
  // rank number that both hosts have. If `other` is `host`, as that host's own group divides them.
  Partition PiecesOf(const Partition& parts, int host, int other) const;
  // Distributes all lanes of a block to all ranks of this host.
  absl::Status GatherBlock(const Operation& operation, const ChainPlan& plan, size_t block,
                           const std::byte* lane, std::byte* out);

  // With hosts of different sizes: a rank without counterparts waits for its host's other ranks.
  absl::Status Depart();
  std::byte* Room(size_t bytes);

  // Count the bytes that the interface defines for an operation.
  void CountAllGather(const Partition& parts, size_t width);
  void CountReduceScatter(const Partition& parts, size_t width);
  void CountFromRoot(int root, size_t bytes);
  void CountToRoot(int root, size_t bytes);

  const std::vector<std::string> host_by_rank_;
  const std::string name_;
  const HierarchyOptions options_;
  std::optional<LinkCosts> costs_;  // nullopt: the group failed while they were measured
  HierarchyLevels levels_;
  ChainReduction chain_;
  std::vector<std::byte> room_;
  std::array<std::atomic<uint64_t>, kOpKindCount> chained_ = {};
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_BACKEND_H_
