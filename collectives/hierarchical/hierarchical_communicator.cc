#include "collectives/hierarchical/hierarchical_communicator.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "collectives/hierarchical/hierarchical_backend.h"
#include "collectives/hierarchical/hosts.h"
#include "collectives/tcp/tcp_backend.h"

namespace geminid::collectives {

absl::StatusOr<std::unique_ptr<Communicator>> ConnectHierarchical(int rank, int world_size,
                                                                  HierarchicalOptions options) {
  const TcpOptions& given = options.network;
  HierarchyOptions hierarchy = options.hierarchy;
  hierarchy.shm.timeout = given.timeout;
  hierarchy.shm.connect_timeout = given.connect_timeout;
  // Unique among the groups of other jobs of this user on this host.
  const std::string name =
      absl::StrCat("hierarchical/", given.host, ":", given.port, "/", given.job);
  options.network.machine = options.host.empty() ? ThisHost() : options.host;
  auto network = TcpBackend::Connect(rank, world_size, std::move(options.network));
  if (!network.ok()) return network.status();
  std::vector<std::string> hosts;
  for (const RankAddress& rank_address : (*network)->links().options().member->rank_addresses()) {
    hosts.push_back(rank_address.machine);
  }
  return HierarchicalBackend::Make(*std::move(network), hosts, name, hierarchy);
}

}  // namespace geminid::collectives
