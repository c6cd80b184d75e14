// The memory that this process may have: the machine's, or the limits of its cgroups.
#ifndef GEMINID_BASE_MACHINE_MEMORY_H_
#define GEMINID_BASE_MACHINE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace geminid::base {

// The memory limits of this process's cgroup and of all cgroups above it.
struct CgroupMemory {
  std::optional<uint64_t> limit_bytes;  // the lowest limit
  // The least free memory within any of these limits; reclaimable page cache counts as free.
  std::optional<uint64_t> available_bytes;
};
// `membership`: the text of /proc/self/cgroup; `root`: where the controllers are mounted.
CgroupMemory ReadCgroupMemory(const std::string& membership,
                              const std::string& root = "/sys/fs/cgroup");

// For this process.
CgroupMemory ReadOwnCgroupMemory();

// The RAM, or less under a cgroup limit. ~0 if unknown. All defaults that depend on the machine's
// size use this.
uint64_t TotalMemoryBytes();

// What a process could still allocate now without swapping: MemAvailable, or less under a cgroup
// limit. ~0 if unknown.
uint64_t AvailableMemoryBytes();

// For messages: "this machine has 16.0 GiB", or "the memory limit of this process's cgroup is
// 700.0 MiB".
std::string DescribeTotalMemory();

// For parsers of /proc: the bytes of "Name: 123 kB" in `text`.
std::optional<uint64_t> KilobytesField(const std::string& text, const std::string& name);

}  // namespace geminid::base

#endif  // GEMINID_BASE_MACHINE_MEMORY_H_
