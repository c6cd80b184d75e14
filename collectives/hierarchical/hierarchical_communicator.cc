#include "collectives/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "collectives/gloo/gloo_backend.h"
#include "collectives/hierarchical/hierarchical_backend.h"
#include "collectives/hierarchical/hosts.h"

namespace geminid::collectives {
namespace {

absl::StatusOr<std::vector<std::string>> ExchangeHosts(Member& member, const std::string& own,
                                                       int world_size, absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::In(timeout);
  const auto key = [](int rank) { return absl::StrCat("host of/", rank); };
  GEMINID_RETURN_IF_ERROR(member.Set(key(member.rank()), own));
  std::vector<std::string> hosts;
  for (int r = 0; r < world_size; ++r) {
    GEMINID_ASSIGN_OR_RETURN(std::string host, member.Get(key(r), deadline));
    hosts.push_back(std::move(host));
  }
  return hosts;
}

bool AreOne(const std::vector<std::string>& hosts) {
  return std::count(hosts.begin(), hosts.end(), hosts.front()) ==
         static_cast<std::ptrdiff_t>(hosts.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectHierarchical(int rank, int world_size,
                                                                  HierarchicalOptions options) {
  const GlooOptions& given = options.network;
  HierarchyOptions hierarchy = options.hierarchy;
  hierarchy.shm.timeout = given.timeout;
  hierarchy.shm.connect_timeout = given.connect_timeout;
  // Also apart from the groups of other jobs of this user on this host.
  const std::string name =
      absl::StrCat("hierarchical/", given.host, ":", given.port, "/", given.job);
  auto network = GlooBackend::Connect(rank, world_size, std::move(options.network));
  if (!network.ok()) return network.status();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                           ExchangeHosts(*(*network)->links().options().member,
                                         options.host.empty() ? ThisHost() : options.host,
                                         world_size, hierarchy.shm.connect_timeout));
  if (AreOne(hosts)) {
    // The network goes, and rank 0's part of it with rank 0: not before all know their hosts.
    (*network)->SetTimeout(hierarchy.shm.connect_timeout);
    GEMINID_RETURN_IF_ERROR((*network)->DoBarrier({.kind = OpKind::kBarrier}));
    (*network)->SetTimeout(hierarchy.shm.timeout);
  }
  return HierarchicalBackend::Make(*std::move(network), hosts, name, hierarchy);
}

}  // namespace geminid::collectives
