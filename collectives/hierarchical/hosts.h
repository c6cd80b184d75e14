// Which ranks share a host.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace geminid::collectives {

// Hosts whose ranks are numbered consecutively.
struct Hosts {
  int count = 1;
  int ranks_each = 1;  // of the smallest host, if hosts have different numbers of ranks
  // By host its first rank, and at the end the number of ranks; empty: all hosts have ranks_each.
  std::vector<int> firsts{};

  // From each rank's host name. nullopt if the ranks of a host are not consecutive.
  static std::optional<Hosts> Of(std::span<const std::string> host_by_rank);

  bool are_even() const { return firsts.empty(); }
  int ranks() const { return FirstOf(count); }
  int FirstOf(int host) const {
    return are_even() ? host * ranks_each : firsts[static_cast<size_t>(host)];
  }
  int SizeOf(int host) const { return FirstOf(host + 1) - FirstOf(host); }
  int most_ranks() const;  // the largest number of ranks of one host
  int HostOf(int rank) const;
  int LocalOf(int rank) const { return rank - FirstOf(HostOf(rank)); }
  int RankAt(int host, int local) const { return FirstOf(host) + local; }
};

// The name of this process's host. Processes with the same name can share memory, because they run
// on one kernel and in the same namespaces. Containers on one machine may be isolated in ways that
// cannot be detected, so each counts as a host.
std::string ThisHost();

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_
