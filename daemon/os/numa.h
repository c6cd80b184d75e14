// The NUMA nodes of the machine, and memory bound to one of them.
#ifndef GEMINID_DAEMON_OS_NUMA_H_
#define GEMINID_DAEMON_OS_NUMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace geminid::os {

struct NodeMemory {
  int node = 0;
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // free, or held by caches of files
};

// A seam: tests describe a machine of two nodes on one that has a single one.
class Numa {
 public:
  virtual ~Numa() = default;
  // The nodes with memory, in order, as they are now. Never empty.
  virtual std::vector<NodeMemory> Nodes() const = 0;
  // From now on the pages of the mapping come from `node`: from no other if `strict`, else where it
  // has any. For a memfd this holds for whoever maps it.
  virtual absl::Status Bind(void* begin, uint64_t bytes, int node, bool strict) const = 0;
};

// The kernel's. Lives for ever; thread-safe.
const Numa& SystemNuma();

// "node 0: 12.0 GiB, node 1: 3.0 GiB", of what is available.
std::string AvailableText(const std::vector<NodeMemory>& nodes);

// From the text of /sys/devices/system/node/nodeN/meminfo; none when it lacks the total.
std::optional<NodeMemory> ParseNodeMemory(int node, const std::string& meminfo);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_NUMA_H_
