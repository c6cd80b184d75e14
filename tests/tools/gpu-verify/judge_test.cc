// The judgement of measured rates, with invented rates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/gpu-verify/link_rates.h"
#include "tools/gpu-verify/overlap.h"

namespace geminid::gpu_verify {
namespace {

using testing::HasSubstr;

// Kernels run at 1000 per second and copies at 100, each times the retained share.
OverlapCase Kept(double own_kernels, double own_copies) {
  return {1000, {1000 * own_kernels, 100 * own_copies}, {400, 40}};
}

TEST(Overlap, BothKeepTheirRate_Passes) {
  const Outcome outcome = JudgeOverlap(100, Kept(0.99, 0.97), Kept(0.6, 0.9));
  EXPECT_EQ(outcome.verdict, Verdict::kPass);
  EXPECT_THAT(outcome.figure, HasSubstr("arithmetic kernels keep 99 % and copies 97 %"));
  EXPECT_THAT(outcome.figure, HasSubstr("40 % and 40 % when another process copies"));
}

TEST(Overlap, KernelsWaitForCopies_Fails) {
  EXPECT_EQ(JudgeOverlap(100, Kept(0.5, 1), Kept(1, 1)).verdict, Verdict::kFail);
}

TEST(Overlap, CopiesWaitForKernels_Fails) {
  EXPECT_EQ(JudgeOverlap(100, Kept(1, 0.5), Kept(1, 1)).verdict, Verdict::kFail);
}

TEST(Overlap, NothingWasMeasured_Fails) {
  EXPECT_EQ(JudgeOverlap(0, {1000, {0, 0}, {0, 0}}, Kept(1, 1)).verdict, Verdict::kFail);
}

TEST(Link, DirectionsThatHardlyTouchEachOther_Pass) {
  const Outcome outcome = JudgeLink({.up = 50e9, .down = 40e9, .both = 70e9});
  EXPECT_EQ(outcome.verdict, Verdict::kPass);
  EXPECT_EQ(outcome.figure, "up 50.0, down 40.0, both at once 70.0 GB/s together");
}

TEST(Link, DirectionsThatWaitForEachOther_Fail) {
  const Outcome outcome = JudgeLink({.up = 50e9, .down = 50e9, .both = 74e9});
  EXPECT_EQ(outcome.verdict, Verdict::kFail);
  EXPECT_THAT(outcome.reason, HasSubstr("less than 75 %"));
}

}  // namespace
}  // namespace geminid::gpu_verify
