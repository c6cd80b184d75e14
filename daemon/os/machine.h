// What the machine offers: memory, cgroup limits, NUMA nodes, huge pages.
#ifndef GEMINID_DAEMON_OS_MACHINE_H_
#define GEMINID_DAEMON_OS_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/os/numa.h"

namespace geminid::os {

// One finding, for people: the AdminService shows the list.
struct MachineFact {
  std::string name;
  std::string value;
  bool in_use = false;
  std::string why_not;  // empty when in use, or when there is nothing to use
};

struct HugePages {
  uint64_t page_bytes = 0;       // of the default huge page size; 0: the kernel has none
  uint64_t free_pages = 0;       // reserved by the administrator and not in use
  bool shmem_on_advice = false;  // a memfd gets transparent huge pages when it is advised to
  std::string shmem_enabled;     // as the kernel says it: never, advise, within_size, always, ...
  // Reserved pages count against the memory limits of cgroups, as other memory does.
  bool counted_by_cgroups = false;
};

struct Machine {
  uint64_t ram_bytes = 0;
  std::optional<uint64_t> cgroup_limit_bytes;  // of this process, when lower than the RAM
  std::vector<NodeMemory> nodes;               // as they were when read
  HugePages huge_pages;
  uint64_t memlock_limit_bytes = 0;  // ~0: none
  std::string id;                    // of this installation; empty: unknown
};

// The huge pages of this moment.
HugePages ReadHugePages();

// Asks the kernel, and `numa` for the nodes. A value that cannot be read counts as absent.
Machine ReadMachine(const Numa& numa = SystemNuma());

// `use_huge_pages`: as configured.
std::vector<MachineFact> Facts(const Machine& machine, bool use_huge_pages);

// From the text of /proc/self/mounts: cgroup version 2 is mounted with memory_hugetlb_accounting
// (Linux 6.7; systemd 259 and later mount it so).
bool CgroupsCountHugePages(const std::string& mounts);

// The word in brackets of "always [madvise] never".
std::string BracketedWord(const std::string& text);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_MACHINE_H_
