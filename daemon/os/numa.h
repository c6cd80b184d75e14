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

// An interface, so that tests can describe a machine of two nodes on one with a single node.
class Numa {
 public:
  virtual ~Numa() = default;
  // The nodes with memory, in order, as they are now. Never empty.
  virtual std::vector<NodeMemory> Nodes() const = 0;
  // From now on the pages of the mapping come from `node`: from no other if `strict`, else while it
  // has free ones. For a memfd this holds in every process that maps it.
  virtual absl::Status Bind(void* begin, uint64_t bytes, int node, bool strict) const = 0;
};

// The kernel's implementation. Lives for ever; thread-safe.
const Numa& SystemNuma();

// "node 0: 12.0 GiB, node 1: 3.0 GiB", of what is available.
std::string AvailableText(const std::vector<NodeMemory>& nodes);

// From the text of /sys/devices/system/node/nodeN/meminfo; none when it lacks the total.
std::optional<NodeMemory> ParseNodeMemory(int node, const std::string& meminfo);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_NUMA_H_
