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
};

struct Machine {
  uint64_t ram_bytes = 0;
  std::optional<uint64_t> cgroup_limit_bytes;  // of this process, when lower than the RAM
  std::vector<NodeMemory> nodes;               // as they were at the time
  HugePages huge_pages;
  uint64_t memlock_limit_bytes = 0;  // ~0: none
  std::string id;                    // of this installation; empty: unknown
};

// Asks the kernel, and `numa` for the nodes. What cannot be read counts as not there.
Machine ReadMachine(const Numa& numa = SystemNuma());

// The memory limits of the cgroup of this process and of all cgroups above it.
struct CgroupMemory {
  std::optional<uint64_t> limit_bytes;  // the lowest
  // What is left within each of them, page cache that may go counted as free; the least.
  std::optional<uint64_t> available_bytes;
};
// `membership` is the text of /proc/self/cgroup; `root` is where the controllers are mounted.
CgroupMemory ReadCgroupMemory(const std::string& membership,
                              const std::string& root = "/sys/fs/cgroup");

// The RAM, or less under a cgroup limit. ~0 when unknown.
uint64_t TotalMemoryBytes();

// What a process could still allocate now without swapping: MemAvailable, or less under a cgroup
// limit. ~0 when unknown.
uint64_t AvailableMemoryBytes();

// `use_huge_pages` is the configuration's wish.
std::vector<MachineFact> Facts(const Machine& machine, bool use_huge_pages);

// For parsers of /proc: the bytes of "Name:   123 kB" within `text`.
std::optional<uint64_t> KilobytesField(const std::string& text, const std::string& name);
// The word in brackets of "always [madvise] never".
std::string BracketedWord(const std::string& text);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_MACHINE_H_
