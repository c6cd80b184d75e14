#include "training/logs/wait_words.h"

#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);

class WaitWordsTest : public ::testing::Test {
 protected:
  // The words of so many calls, half a second apart.
  std::string Wait(int calls, const std::string& what) {
    std::string said;
    for (int i = 0; i < calls; ++i, now_ += kTick) said += words_.Waits(now_, what).value_or("");
    return said;
  }

  absl::Time now_ = absl::UnixEpoch();
  WaitWords words_;
};

TEST_F(WaitWordsTest, WaitOfLessThanASecond_SaysNothing) { EXPECT_EQ(Wait(2, "a"), ""); }

TEST_F(WaitWordsTest, LongWait_IsSaidOnce) {
  EXPECT_EQ(Wait(60, "job a is queued"), "geminid-train: waits: job a is queued\n");
}

TEST_F(WaitWordsTest, OtherReason_IsSaidAtOnce) {
  EXPECT_NE(Wait(10, "a"), "");
  EXPECT_EQ(Wait(1, "b"), "geminid-train: waits: b\n");
}

TEST_F(WaitWordsTest, SecondWait_IsSaidAgainAfterASecond) {
  EXPECT_NE(Wait(10, "a"), "");
  now_ += absl::Minutes(1);
  EXPECT_EQ(Wait(2, "a"), "");
  EXPECT_EQ(Wait(2, "a"), "geminid-train: waits: a\n");
}

}  // namespace
}  // namespace geminid::trainer
