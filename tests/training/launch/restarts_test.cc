#include "training/launch/restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "training/launch/run_memory.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

collectives::Environment Of(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    // The values live as long as the environment does.
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Restarts, WithoutALauncher_NothingIsKept) {
  const absl::StatusOr<Restarts> restarts = RestartsFrom(Of({}));
  ASSERT_TRUE(restarts.ok());
  EXPECT_EQ(restarts->count, 0);
  EXPECT_EQ(restarts->most, 0);
  EXPECT_FALSE(restarts->keeps());
}

TEST(Restarts, OfOurLauncher_AreReadWithTheTimeOfTheFailure) {
  const collectives::Environment environment = Of({{"GEMINID_RESTART_COUNT", "2"},
                                                   {"GEMINID_MAX_RESTARTS", "3"},
                                                   {"GEMINID_FAILED_AGO", "500000000"},
                                                   {"GEMINID_STARTED_AT", "2000000000"},
                                                   {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                   {"TORCHELASTIC_MAX_RESTARTS", "0"}});
  const absl::StatusOr<Restarts> restarts = RestartsFrom(environment);
  ASSERT_TRUE(restarts.ok());
  EXPECT_EQ(restarts->count, 2);
  EXPECT_TRUE(restarts->keeps());
  EXPECT_EQ(restarts->failed_at, absl::UnixEpoch() + absl::Milliseconds(1500));
}

TEST(Restarts, OfTorchrun_AreRead) {
  const collectives::Environment environment =
      Of({{"TORCHELASTIC_RESTART_COUNT", "3"}, {"TORCHELASTIC_MAX_RESTARTS", "3"}});
  const absl::StatusOr<Restarts> restarts = RestartsFrom(environment);
  ASSERT_TRUE(restarts.ok());
  EXPECT_EQ(restarts->count, 3);
  EXPECT_FALSE(restarts->keeps());  // this is the last start
  EXPECT_EQ(restarts->failed_at, std::nullopt);
}

TEST(Restarts, ThatAreNoNumbers_AreRefusedByName) {
  const collectives::Environment environment =
      Of({{"TORCHELASTIC_RESTART_COUNT", "many"}, {"TORCHELASTIC_MAX_RESTARTS", "3"}});
  const absl::Status status = RestartsFrom(environment).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("TORCHELASTIC_RESTART_COUNT=\"many\""));
}

TEST(Restarts, Start_SaysWhereItBeginsAndWhatItCost) {
  const absl::Time failed = absl::UnixEpoch();
  const Restarts restarts = {.count = 1, .most = 3, .failed_at = failed};
  EXPECT_EQ(DescribeStart(restarts, {true, 117, "memory"}, failed + absl::Milliseconds(612)),
            "start 2: goes on after step 117, from memory; 612ms after the failure");
  EXPECT_EQ(DescribeStart(restarts, {false, 100, "run/step-100"}, failed + absl::Seconds(2)),
            "start 2: not all ranks left their state in memory; begins after step 100, from "
            "run/step-100; 2s after the failure");
  EXPECT_EQ(DescribeStart({.count = 2, .most = 3}, {false, 0, ""}, failed),
            "start 3: not all ranks left their state in memory; begins after step 0");
}

TEST(Restarts, OfAnotherNumberOfRanks_AreReadAndSaid) {
  const absl::StatusOr<Restarts> restarts = RestartsFrom(Of({{kRescalesVariable, "2"},
                                                             {kMayShrinkVariable, "1"},
                                                             {kShrinkToVariable, "3"},
                                                             {kHasShrunkVariable, "1"},
                                                             {kJobsBeforeVariable, "0123,4567"},
                                                             {kSignalBeforeVariable, "15"}}));
  ASSERT_TRUE(restarts.ok()) << restarts.status();
  EXPECT_FALSE(restarts->is_first());
  EXPECT_TRUE(restarts->keeps());
  EXPECT_TRUE(restarts->comes_back());
  EXPECT_EQ(restarts->shrink_to, 3);
  EXPECT_TRUE(restarts->has_shrunk);
  EXPECT_THAT(restarts->jobs_before, testing::ElementsAre("0123", "4567"));
  EXPECT_EQ(restarts->signal_before, 15);
  EXPECT_EQ(DescribeStart(*restarts, {false, 12, "memory", 2}, absl::UnixEpoch()),
            "start 3: goes on after step 12, from the state of 2 ranks in memory");
}

TEST(Restarts, RunName_TellsRunsApartAndFitsTheDaemon) {
  collectives::RankInfo info;
  info.job = "0123456789abcdef";
  info.master_port = 29500;
  EXPECT_EQ(RunName(info), "0123456789abcdef:29500");
  info.job = "";
  EXPECT_EQ(RunName(info), "run:29500");
  info.job = std::string(100, 'x');
  EXPECT_EQ(RunName(info).size(), 63u);
}

TEST(RunMemory, OfALauncher_HasWhatWasKeptLast) {
  const absl::StatusOr<base::UniqueFd> memory = MakeRunMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  const RunMemory rank = RunMemory::From(Of({{kRunMemoryVariable, std::to_string(memory->get())}}));
  ASSERT_TRUE(rank.is_there());
  EXPECT_EQ(rank.Kept(RunNote::kMesh), "");
  EXPECT_TRUE(rank.Keep(RunNote::kMesh, "pipeline=2,data=2\n4").ok());
  EXPECT_EQ(rank.Kept(RunNote::kMesh), "pipeline=2,data=2\n4");
  EXPECT_TRUE(rank.Keep(RunNote::kMesh, "data=4").ok());
  EXPECT_EQ(rank.Kept(RunNote::kMesh), "data=4");
  EXPECT_TRUE(absl::IsInvalidArgument(rank.Keep(RunNote::kMesh, std::string(kRunNoteBytes, 'x'))));
  EXPECT_EQ(rank.Kept(RunNote::kMesh), "data=4");
}

TEST(RunMemory, WhoseMeshIsForgotten_StillHasTheData) {
  const absl::StatusOr<base::UniqueFd> memory = MakeRunMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  const RunMemory run(memory->get());
  const std::string most(kRunNoteBytes - 1, 'm');
  EXPECT_TRUE(run.Keep(RunNote::kMesh, most).ok());
  EXPECT_TRUE(run.Keep(RunNote::kData, "2000 bytes").ok());
  EXPECT_EQ(run.Kept(RunNote::kMesh), most);
  EXPECT_TRUE(run.Keep(RunNote::kMesh, "").ok());
  EXPECT_EQ(run.Kept(RunNote::kMesh), "");
  EXPECT_EQ(run.Kept(RunNote::kData), "2000 bytes");
}

TEST(RunMemory, WithoutALauncher_IsNotThere) {
  EXPECT_FALSE(RunMemory().is_there());
  EXPECT_FALSE(RunMemory::From(Of({})).is_there());
  EXPECT_FALSE(RunMemory::From(Of({{kRunMemoryVariable, "9999"}})).is_there());
}

}  // namespace
}  // namespace geminid::trainer
