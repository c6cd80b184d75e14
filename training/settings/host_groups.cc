#include "training/settings/host_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "training/meshes/axes.h"

namespace geminid::trainer {
namespace {

struct Group {
  const char* axis;
  int size;
};

// The innermost axis, whose groups are of ranks that follow each other.
Group InnermostOf(const Parallel& parallel) {
  if (parallel.tensor.size > 1) return {kTensorAxis, parallel.tensor.size};
  return {kExpertAxis, parallel.expert};
}

bool AreWithinHosts(std::span<const int> host_by_rank, int size) {
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    const size_t first = rank - rank % static_cast<size_t>(size);
    if (host_by_rank[rank] != host_by_rank[first]) return false;
  }
  return true;
}

// Ranks that each host has a multiple of.
int CommonPart(std::span<const int> host_by_rank) {
  std::vector<int> ranks(static_cast<size_t>(*std::ranges::max_element(host_by_rank)) + 1);
  for (const int host : host_by_rank) ++ranks[static_cast<size_t>(host)];
  return std::accumulate(ranks.begin(), ranks.end(), 0,
                         [](int a, int b) { return std::gcd(a, b); });
}

}  // namespace

std::optional<std::vector<int>> HostsOf(std::span<const LocalPlace> by_rank) {
  struct Host {
    int ranks = 0;  // that were met
    int size = 0;
  };
  std::vector<Host> hosts;
  std::vector<int> host_by_rank;
  for (const LocalPlace& place : by_rank) {
    const auto waits_for_it = [&](const Host& host) {
      return host.ranks == place.local_rank && host.size == place.local_world_size;
    };
    if (place.local_rank >= place.local_world_size) return std::nullopt;
    if (place.local_rank == 0) hosts.push_back({0, place.local_world_size});
    const auto host =
        place.local_rank == 0 ? hosts.end() - 1 : std::ranges::find_if(hosts, waits_for_it);
    if (host == hosts.end()) return std::nullopt;
    ++host->ranks;
    host_by_rank.push_back(static_cast<int>(host - hosts.begin()));
  }
  for (const Host& host : hosts) {
    if (host.ranks != host.size) return std::nullopt;
  }
  return host_by_rank;
}

absl::StatusOr<std::vector<int>> RanksOnHostOf(int rank, std::span<const int64_t> host_by_rank) {
  std::map<int64_t, std::vector<int>> ranks_of;
  for (size_t other = 0; other < host_by_rank.size(); ++other) {
    ranks_of[host_by_rank[other]].push_back(static_cast<int>(other));
  }
  if (ranks_of.size() == 1) return std::vector<int>();
  size_t least = host_by_rank.size();
  size_t most = 0;
  for (const auto& [host, ranks] : ranks_of) {
    least = std::min(least, ranks.size());
    most = std::max(most, ranks.size());
  }
  if (least == most) return ranks_of[host_by_rank[static_cast<size_t>(rank)]];
  return parallel::RefuseParallel(absl::StrCat(
      "zero=3:host needs the same number of ranks that share weights on each host, and there are ",
      least, " to ", most, "; start as many on each, or take zero=3"));
}

std::string WarnOfGroups(const Parallel& parallel, std::span<const int> host_by_rank,
                         absl::FunctionRef<bool(int)> fits) {
  const Group group = InnermostOf(parallel);
  if (group.size == 1 || host_by_rank.empty() || AreWithinHosts(host_by_rank, group.size)) {
    return "";
  }
  const std::string words = absl::StrCat("the ranks of ", group.axis, ", ", group.size,
                                         " that follow each other, talk most and lie on several "
                                         "hosts; ");
  const int part = CommonPart(host_by_rank);
  if (part % group.size == 0) {
    return absl::StrCat(words, "number the ranks host by host (with Slurm --distribution=block)");
  }
  for (int size = std::min(part, group.size - 1); size > 1; --size) {
    if (part % size != 0 || !fits(size)) continue;
    return absl::StrCat(words, "with a size of ", size, " they would not");
  }
  return "";
}

}  // namespace geminid::trainer
