#include "daemon/os/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::os {
namespace {

TEST(NodeMemory, Meminfo_CountsFreeMemoryAndCachesOfFiles) {
  const std::optional<NodeMemory> memory = ParseNodeMemory(1,
                                                           "Node 1 MemTotal:       1000 kB\n"
                                                           "Node 1 MemFree:         100 kB\n"
                                                           "Node 1 Active(anon):    400 kB\n"
                                                           "Node 1 Active(file):     20 kB\n"
                                                           "Node 1 Inactive(file):    3 kB\n"
                                                           "Node 1 SReclaimable:      7 kB\n"
                                                           "Node 1 HugePages_Free:    9\n");
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->node, 1);
  EXPECT_EQ(memory->total_bytes, 1000u * 1024);
  EXPECT_EQ(memory->available_bytes, 130u * 1024);
}

TEST(NodeMemory, TextWithoutATotal_IsNoNode) {
  EXPECT_FALSE(ParseNodeMemory(0, "").has_value());
  EXPECT_FALSE(ParseNodeMemory(0, "Node 0 MemTotal: lots kB\n").has_value());
}

TEST(SystemNuma, Nodes_HaveMemory) {
  const std::vector<NodeMemory> nodes = SystemNuma().Nodes();
  ASSERT_FALSE(nodes.empty());
  for (const NodeMemory& memory : nodes) EXPECT_GT(memory.total_bytes, 0u);
}

TEST(AvailableText, Nodes_AreNamedOneByOne) {
  EXPECT_EQ(AvailableText({{0, 0, uint64_t{12} << 30}, {3, 0, uint64_t{3} << 20}}),
            "node 0: 12.0 GiB, node 3: 3.0 MiB");
}

}  // namespace
}  // namespace geminid::os
