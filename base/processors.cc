#include "base/processors.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace geminid::base {
namespace {

void Lower(std::optional<double> value, std::optional<double>* least) {
  if (value && *value > 0) *least = std::min(least->value_or(*value), *value);
}

// Version 2: "max 100000", or the quota and the period in microseconds.
std::optional<double> QuotaOfV2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

// Version 1: a quota of -1 means no limit.
std::optional<double> QuotaOfV1(const std::string& folder) {
  double quota = 0, period = 0;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// The least of a group and those above it. If a container does not see a group under its own name,
// the group is the root of what the container sees.
template <typename Quota>
void LowerByGroups(const std::string& mount, std::string group, const Quota& quota,
                   std::optional<double>* least) {
  while (!group.empty() && group != "/") {
    Lower(quota(mount + group), least);
    group.erase(group.rfind('/'));
  }
  Lower(quota(mount), least);
}

bool Lists(const std::string& controllers, const std::string& one) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == one) return true;
  }
  return false;
}

}  // namespace

std::vector<int> AllowedProcessors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  return processors;
}

std::optional<double> ProcessorQuota(const std::string& root) {
  std::optional<double> least;
  std::ifstream groups(root + "/proc/self/cgroup");
  // hierarchy:controllers:group
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (!group.starts_with('/')) continue;
    if (controllers.empty()) {
      LowerByGroups(root + "/sys/fs/cgroup", group, QuotaOfV2, &least);
    } else if (Lists(controllers, "cpu")) {
      LowerByGroups(root + "/sys/fs/cgroup/cpu", group, QuotaOfV1, &least);
    }
  }
  return least;
}

}  // namespace geminid::base
