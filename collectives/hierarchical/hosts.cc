#include "collectives/hierarchical/hosts.h"

#include <unistd.h>

#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"

namespace geminid::collectives {

std::optional<Hosts> Hosts::Of(std::span<const std::string> host_by_rank) {
  size_t each = 0;  // of the first host
  while (each < host_by_rank.size() && host_by_rank[each] == host_by_rank.front()) ++each;
  if (each == 0 || host_by_rank.size() % each != 0) return std::nullopt;
  std::set<std::string> seen;
  for (size_t begin = 0; begin < host_by_rank.size(); begin += each) {
    if (!seen.insert(host_by_rank[begin]).second) return std::nullopt;
    for (size_t local = 0; local < each; ++local) {
      if (host_by_rank[begin + local] != host_by_rank[begin]) return std::nullopt;
    }
  }
  return Hosts{.count = static_cast<int>(seen.size()), .ranks_each = static_cast<int>(each)};
}

std::string ThisHost() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char network[64] = {};
  if (::readlink("/proc/self/ns/net", network, sizeof(network) - 1) < 0) network[0] = '\0';
  char name[256] = {};  // where there is no /proc
  if (boot.empty() && ::gethostname(name, sizeof(name) - 1) != 0) name[0] = '\0';
  return absl::StrCat(boot, "/", network, "/", name);
}

}  // namespace geminid::collectives
