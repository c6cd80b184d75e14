// Which ranks share a host.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_

#include <optional>
#include <span>
#include <string>

namespace geminid::collectives {

// Hosts of equally many ranks each, whose numbers follow each other.
struct Hosts {
  int count = 1;
  int ranks_each = 1;

  // From the name of each rank's host. None if the hosts have different numbers of ranks, or ranks
  // of a host are not next to each other.
  static std::optional<Hosts> Of(std::span<const std::string> host_by_rank);

  int HostOf(int rank) const { return rank / ranks_each; }
  int LocalOf(int rank) const { return rank % ranks_each; }
  int RankAt(int host, int local) const { return host * ranks_each + local; }
};

// The name of this process's host: processes with the same name can share memory, because they run
// on one kernel and in one network namespace, in which they find each other.
std::string ThisHost();

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_
