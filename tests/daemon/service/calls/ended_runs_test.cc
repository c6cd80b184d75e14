#include "daemon/service/calls/ended_runs.h"

#include <gtest/gtest.h>

#include <string>

namespace geminid::service {
namespace {

const EndedRuns::Run kRun = {"uid:7", "train", "4f1c:29500"};

core::Time At(int64_t seconds) { return core::Time() + core::Duration::Seconds(seconds); }

TEST(EndedRuns, RunThatWasEnded_IsKnownForAMinute) {
  EndedRuns runs;
  EXPECT_FALSE(runs.Has(kRun, At(0)));
  runs.Note(kRun, At(10));
  EXPECT_TRUE(runs.Has(kRun, At(10)));
  EXPECT_TRUE(runs.Has(kRun, At(69)));
  EXPECT_FALSE(runs.Has(kRun, At(70)));
  EXPECT_FALSE(runs.Has(kRun, At(69))) << "it was forgotten";
}

TEST(EndedRuns, RunThatWasEndedTwice_IsKnownForAMinuteAfterTheSecondTime) {
  EndedRuns runs;
  runs.Note(kRun, At(0));
  runs.Note(kRun, At(3));
  EXPECT_TRUE(runs.Has(kRun, At(62)));
}

TEST(EndedRuns, AnotherRunJobOrTenant_WasNotEnded) {
  EndedRuns runs;
  runs.Note(kRun, At(0));
  EXPECT_FALSE(runs.Has({"uid:8", kRun.job, kRun.run}, At(0)));
  EXPECT_FALSE(runs.Has({kRun.tenant, "other", kRun.run}, At(0)));
  EXPECT_FALSE(runs.Has({kRun.tenant, kRun.job, "9b30:29500"}, At(0)));
}

TEST(EndedRuns, MoreThanTheMost_ForgetTheOldest) {
  EndedRuns runs;
  const auto numbered = [](size_t i) {
    return EndedRuns::Run{"uid:7", "train", std::to_string(i)};
  };
  for (size_t i = 0; i <= EndedRuns::kMost; ++i) runs.Note(numbered(i), At(0));
  EXPECT_FALSE(runs.Has(numbered(0), At(0)));
  EXPECT_TRUE(runs.Has(numbered(1), At(0)));
}

}  // namespace
}  // namespace geminid::service
