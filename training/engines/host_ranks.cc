#include "training/engines/host_ranks.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/hash.h"
#include "base/status_macros.h"
#include "collectives/hierarchical/hosts.h"
#include "training/meshes/axes.h"
#include "training/settings/host_groups.h"

namespace geminid::trainer {
namespace {

absl::StatusOr<std::vector<int64_t>> HostsOfRanks(collectives::Communicator& ranks) {
  base::Fnv1a hash;
  hash.AddText(collectives::ThisHost());
  const std::vector<int64_t> mine = {static_cast<int64_t>(hash.value())};
  std::vector<int64_t> hosts(static_cast<size_t>(ranks.WorldSize()));
  GEMINID_RETURN_IF_ERROR(ranks.AllGather(mine, hosts));
  return hosts;
}

// Whether any rank has an error, so that none goes on alone.
absl::StatusOr<bool> AnyRefuses(collectives::Communicator& world, bool mine) {
  std::vector<int32_t> refused = {mine ? 1 : 0};
  GEMINID_RETURN_IF_ERROR(world.AllReduce(refused, refused, collectives::ReduceOp::kMax));
  return refused[0] > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectHostRanks(
    collectives::Communicator& world, collectives::Communicator& ranks, bool may_be_without) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int64_t> all, HostsOfRanks(world));
  const bool is_one = std::ranges::count(all, all.front()) == world.WorldSize();
  if (is_one && may_be_without) return nullptr;
  if (is_one) {
    return parallel::RefuseParallel(
        "zero=3:host saves traffic between hosts, and all ranks are on one host; take zero=3");
  }
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int64_t> hosts, HostsOfRanks(ranks));
  const absl::StatusOr<std::vector<int>> here = RanksOnHostOf(ranks.Rank(), hosts);
  GEMINID_ASSIGN_OR_RETURN(const bool refused, AnyRefuses(world, !here.ok()));
  if (refused && may_be_without) return nullptr;
  if (!here.ok()) return here.status();
  if (refused || here->empty()) return nullptr;
  return ranks.Subset("ranks of the host", *here);
}

}  // namespace geminid::trainer
