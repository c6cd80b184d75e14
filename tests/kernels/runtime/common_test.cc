#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/runtime/common/buffers.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {
namespace {

TEST(Status, EveryValue_HasItsOwnName) {
  std::set<std::string> names;
  constexpr int kValues = static_cast<int>(Status::kUnsupported) + 1;
  for (int i = 0; i < kValues; ++i) names.insert(StatusName(static_cast<Status>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kValues));
  EXPECT_FALSE(names.contains("Unknown"));
  EXPECT_STREQ(StatusName(static_cast<Status>(99)), "Unknown");
}

TEST(Buffers, Neighbours_DoNotOverlap) {
  float a[8];
  EXPECT_FALSE(Overlaps(Buffer::Of(a, 4), Buffer::Of(a + 4, 4)));
  EXPECT_TRUE(Overlaps(Buffer::Of(a, 5), Buffer::Of(a + 4, 4)));
  EXPECT_TRUE(Overlaps(Buffer::Of(a + 4, 4), Buffer::Of(a, 5)));
  EXPECT_TRUE(Overlaps(Buffer::Of(a, 8), Buffer::Of(a + 3, 1)));
  EXPECT_FALSE(Overlaps(Buffer::Of(a, 8), Buffer::Of(a + 3, 0)));
}

TEST(Buffers, InputsMayOverlap_OutputsMayNot) {
  float a[8], b[8];
  const Buffer input = Buffer::Of(a, 8), output = Buffer::Of(b, 8);
  EXPECT_EQ(CheckBuffers({input, input}, {output}), Status::kOk);
  EXPECT_EQ(CheckBuffers({input}, {output, output}), Status::kOverlap);
  EXPECT_EQ(CheckBuffers({input}, {input}), Status::kOverlap);
}

// The last element ends exactly at the end of the address space, or one byte beyond it.
TEST(Buffers, SizeThatWrapsAround_IsRefused) {
  const auto* high = reinterpret_cast<const float*>(UINTPTR_MAX - 15);
  EXPECT_EQ(CheckBuffer(Buffer::Of(high, 3)), Status::kOk);
  EXPECT_EQ(CheckBuffer(Buffer::Of(high, 4)), Status::kSizeOverflow);
  EXPECT_EQ(CheckBuffer(Buffer::Of(high, SIZE_MAX)), Status::kSizeOverflow);
}

}  // namespace
}  // namespace geminid::kernels
