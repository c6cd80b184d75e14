#include "collectives/hierarchical/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::collectives {

std::optional<Hosts> Hosts::Of(std::span<const std::string> host_by_rank) {
  if (host_by_rank.empty()) return std::nullopt;
  std::set<std::string> seen;
  std::vector<int> firsts;
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    if (rank > 0 && host_by_rank[rank] == host_by_rank[rank - 1]) continue;
    if (!seen.insert(host_by_rank[rank]).second) return std::nullopt;
    firsts.push_back(static_cast<int>(rank));
  }
  const int count = static_cast<int>(firsts.size());
  firsts.push_back(static_cast<int>(host_by_rank.size()));
  Hosts hosts = {.count = count, .ranks_each = firsts.back(), .firsts = std::move(firsts)};
  for (int host = 0; host < count; ++host) {
    hosts.ranks_each = std::min(hosts.ranks_each, hosts.SizeOf(host));
  }
  if (hosts.most_ranks() == hosts.ranks_each) hosts.firsts.clear();
  return hosts;
}

int Hosts::most_ranks() const {
  int most = ranks_each;
  for (int host = 0; host < count; ++host) most = std::max(most, SizeOf(host));
  return most;
}

int Hosts::HostOf(int rank) const {
  if (are_even()) return rank / ranks_each;
  const auto after = std::upper_bound(firsts.begin(), firsts.end(), rank);
  return static_cast<int>(after - firsts.begin()) - 1;
}

std::string ThisHost() {
  std::string host;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), host);
  for (const char* name_space : {"net", "pid", "user"}) {
    char which[64] = {};
    const std::string path = absl::StrCat("/proc/self/ns/", name_space);
    if (::readlink(path.c_str(), which, sizeof(which) - 1) > 0) absl::StrAppend(&host, "/", which);
  }
  if (!host.empty()) return host;
  char name[256] = {};  // if there is no /proc
  if (::gethostname(name, sizeof(name) - 1) != 0) name[0] = '\0';
  return name;
}

}  // namespace geminid::collectives
