#include "daemon/os/numa.h"

#include <numa.h>
#include <numaif.h>

#include <cerrno>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/files.h"
#include "base/system_error.h"

namespace geminid::os {
namespace {

constexpr uint64_t kKilobyte = 1024;

class KernelNuma final : public Numa {
 public:
  std::vector<NodeMemory> Nodes() const override {
    std::vector<NodeMemory> nodes;
    const int last = ::numa_available() < 0 ? -1 : ::numa_max_node();
    for (int node = 0; node <= last; ++node) {
      const std::optional<NodeMemory> memory = ParseNodeMemory(
          node,
          base::ReadKernelFile(absl::StrCat("/sys/devices/system/node/node", node, "/meminfo")));
      if (memory.has_value() && memory->total_bytes > 0) nodes.push_back(*memory);
    }
    if (nodes.empty()) {
      constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
      nodes.push_back({.node = 0, .total_bytes = kUnknown, .available_bytes = kUnknown});
    }
    return nodes;
  }

  absl::Status Bind(void* begin, uint64_t bytes, int node, bool strict) const override {
    bitmask* const nodes = ::numa_allocate_nodemask();
    ::numa_bitmask_setbit(nodes, static_cast<unsigned>(node));
    const long bound = ::mbind(begin, bytes, strict ? MPOL_BIND : MPOL_PREFERRED, nodes->maskp,
                               nodes->size + 1, 0);
    const int error = errno;
    ::numa_free_nodemask(nodes);
    return bound == 0 ? absl::OkStatus()
                      : base::SystemError(error, "mbind", absl::StrCat("NUMA node ", node));
  }
};

}  // namespace

const Numa& SystemNuma() {
  static const KernelNuma* const numa = new KernelNuma;
  return *numa;
}

std::string AvailableText(const std::vector<NodeMemory>& nodes) {
  return absl::StrJoin(nodes, ", ", [](std::string* out, const NodeMemory& memory) {
    absl::StrAppend(out, "node ", memory.node, ": ", base::FormatBytes(memory.available_bytes));
  });
}

// "Node 0 MemFree:         1234 kB", and so on.
std::optional<NodeMemory> ParseNodeMemory(int node, const std::string& meminfo) {
  std::optional<uint64_t> total;
  uint64_t available_kilobytes = 0;
  for (const auto& line : absl::StrSplit(meminfo, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kilobytes = 0;
    if (words.size() != 5 || words[4] != "kB" || !absl::SimpleAtoi(words[3], &kilobytes)) continue;
    const std::string& name = words[2];
    if (name == "MemTotal:") total = kilobytes * kKilobyte;
    if (name == "MemFree:" || name == "Active(file):" || name == "Inactive(file):" ||
        name == "SReclaimable:") {
      available_kilobytes += kilobytes;
    }
  }
  if (!total.has_value()) return std::nullopt;
  return NodeMemory{
      .node = node, .total_bytes = *total, .available_bytes = available_kilobytes * kKilobyte};
}

}  // namespace geminid::os
