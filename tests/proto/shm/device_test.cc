#include "proto/shm/device.h"

#include <gtest/gtest.h>

namespace geminid::shm {
namespace {

TEST(Uuid, Text_HasTheUsualGroups) {
  Uuid uuid;
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<uint8_t>(0x10 * i + i);
  EXPECT_EQ(ToString(uuid), "00112233-4455-6677-8899-aabbccddeeff");
}

TEST(Uuid, Made_IsOfVersionEightAndDependsOnBothHalves) {
  const std::string text = ToString(MakeUuid(~uint64_t{0}, ~uint64_t{0}));
  EXPECT_EQ(text, "ffffffff-ffff-8fff-bfff-ffffffffffff");
  EXPECT_EQ(ToString(MakeUuid(0, 0)), "00000000-0000-8000-8000-000000000000");
  EXPECT_NE(MakeUuid(1, 2), MakeUuid(2, 1));
  EXPECT_EQ(MakeUuid(1, 2), MakeUuid(1, 2));
}

}  // namespace
}  // namespace geminid::shm
