#include "daemon/core/engine/node_limits.h"

#include "gtest/gtest.h"

namespace geminid::core {
namespace {

TEST(NodeLimits, TenantAboveItsShare_IsRefusedAndCounted) {
  NodeLimits limits(/*sessions=*/4, /*chunks=*/100);
  EXPECT_TRUE(limits.TakeSession("uid:1").ok());
  EXPECT_TRUE(limits.TakeSession("uid:1").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(limits.TakeSession("uid:1")));
  EXPECT_TRUE(absl::IsResourceExhausted(limits.TakeChunks("uid:1", 101)));
  limits.CountRefusal("host_memory", "uid:2");
  const std::vector<Refusals::Row> rows = limits.refusals().Read();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].limit, "chunks");
  EXPECT_EQ(rows[1].limit, "host_memory");
  EXPECT_EQ(rows[2].limit, "sessions");
  EXPECT_EQ(limits.sessions().used(), 2u);
  EXPECT_EQ(limits.chunks().used(), 0u);
}

// Chunks of an earlier daemon, whose limits may have been larger.
TEST(NodeLimits, TakenAgain_IsNotRefused) {
  NodeLimits limits(/*sessions=*/1, /*chunks=*/10);
  limits.TakeAgain("uid:1", 50);
  limits.TakeAgain("uid:1", 50);
  EXPECT_EQ(limits.sessions().used(), 2u);
  EXPECT_EQ(limits.chunks().used(), 100u);
  EXPECT_TRUE(limits.refusals().Read().empty());
  limits.GiveSession("uid:1");
  limits.GiveChunks("uid:1", 50);
  EXPECT_EQ(limits.sessions().used(), 1u);
  EXPECT_EQ(limits.chunks().used(), 50u);
}

}  // namespace
}  // namespace geminid::core
