// How much memory there is for this process: the machine's, or what its cgroups leave of it.
#ifndef GEMINID_BASE_MACHINE_MEMORY_H_
#define GEMINID_BASE_MACHINE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace geminid::base {

// The memory limits of the cgroup of this process and of all cgroups above it.
struct CgroupMemory {
  std::optional<uint64_t> limit_bytes;  // the lowest
  // What is left within each of them, page cache that may go counted as free; the least.
  std::optional<uint64_t> available_bytes;
};
// `membership` is the text of /proc/self/cgroup; `root` is where the controllers are mounted.
CgroupMemory ReadCgroupMemory(const std::string& membership,
                              const std::string& root = "/sys/fs/cgroup");

// Of this process.
CgroupMemory ReadOwnCgroupMemory();

// The RAM, or less under a cgroup limit. ~0 when unknown. Every default that depends on the size of
// the machine is made of this.
uint64_t TotalMemoryBytes();

// What a process could still allocate now without swapping: MemAvailable, or less under a cgroup
// limit. ~0 when unknown.
uint64_t AvailableMemoryBytes();

// For messages: "this machine has 16.0 GiB", or "the memory limit of this process's cgroup is
// 700.0 MiB".
std::string DescribeTotalMemory();

// For parsers of /proc: the bytes of "Name:   123 kB" within `text`.
std::optional<uint64_t> KilobytesField(const std::string& text, const std::string& name);

}  // namespace geminid::base

#endif  // GEMINID_BASE_MACHINE_MEMORY_H_
