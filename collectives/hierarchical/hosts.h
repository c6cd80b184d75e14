// Which ranks share a host.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace geminid::collectives {

// Hosts whose ranks' numbers follow each other.
struct Hosts {
  int count = 1;
  int ranks_each = 1;  // where hosts have different numbers of ranks, the smallest
  // The first rank of each host, and how many ranks there are; empty: all hosts have ranks_each.
  std::vector<int> firsts{};

  // From the name of each rank's host. None if ranks of a host are not next to each other.
  static std::optional<Hosts> Of(std::span<const std::string> host_by_rank);

  bool are_even() const { return firsts.empty(); }
  int ranks() const { return FirstOf(count); }
  int FirstOf(int host) const {
    return are_even() ? host * ranks_each : firsts[static_cast<size_t>(host)];
  }
  int SizeOf(int host) const { return FirstOf(host + 1) - FirstOf(host); }
  int most_ranks() const;  // of a host
  int HostOf(int rank) const;
  int LocalOf(int rank) const { return rank - FirstOf(HostOf(rank)); }
  int RankAt(int host, int local) const { return FirstOf(host) + local; }
};

// The name of this process's host: processes with the same name can share memory, because they run
// on one kernel and in the same namespaces. Containers beside each other may be kept apart in ways
// that nobody can ask for, so that each is a host.
std::string ThisHost();

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HOSTS_H_
