#include "training/run/end_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(DiskEnduranceWords, AreSaidFromNineTenthsOn) {
  EXPECT_EQ(DiskEnduranceWords(1, 899, 1000), "");
  EXPECT_THAT(DiskEnduranceWords(1, 900, 1000),
              AllOf(HasSubstr("rank 1 has written 900"), HasSubstr("--state-disk-endurance")));
}

TEST(DiskEnduranceWords, WithoutALimit_AreNeverSaid) {
  EXPECT_EQ(DiskEnduranceWords(0, uint64_t{1} << 50, 0), "");
}

}  // namespace
}  // namespace geminid::trainer
