#include "tools/geminictl/commands/list.h"

#include <gtest/gtest.h>

namespace geminid::ctl {
namespace {

std::string Where(uint32_t pool, const char* residency) {
  v1::ChunkInfo chunk;
  chunk.set_pool(pool);
  chunk.set_residency(residency);
  return WhereIs(chunk);
}

TEST(WhereIs, OfEveryResidencyWithAHomeAndWithout_IsInWords) {
  EXPECT_EQ(Where(1, "absent"), "on host");
  EXPECT_EQ(Where(1, "none"), "on host");
  EXPECT_EQ(Where(1, "filling"), "on host, loading to device");
  EXPECT_EQ(Where(1, "resident"), "on host, on device");
  EXPECT_EQ(Where(1, "evicting"), "on host, evicting from device");
  EXPECT_EQ(Where(0, "absent"), "not made");
  EXPECT_EQ(Where(0, "resident"), "on device");
  EXPECT_EQ(Where(0, "evict_pending"), "evicting from device");
}

}  // namespace
}  // namespace geminid::ctl
