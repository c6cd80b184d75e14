// Two runs on one daemon that shares its node between them. Each run's losses are those of runs
// that were resumed from checkpoints with the same numbers of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/tools/trainer/scaled_run.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

class Sharing : public ScalingBase, public ::testing::Test {
 protected:
  // A node of two ranks, which the daemon reviews once a second.
  void SetUp() override {
    env_.Stop();
    geminid::testing::DaemonEnvOptions options;
    options.host_memory = "256MiB";
    options.device_memory = "64MiB";
    options.sharing_interval = "1s";
    options.sharing_ranks = 2;
    ASSERT_TRUE(env_.Start(options).ok());
    jobs_ = v1::JobService::NewStub(geminid::testing::NewChannel(env_.socket()));
  }

  Words Shared(const std::string& job, const std::string& log) const {
    return Arguments(
        {"--ranks", "1:2", "--steps", kForever, "--log", log, "--progress", "lines", "--job", job});
  }

  // The changes in the order in which the launcher reported them.
  static std::vector<Change> ChangesOf(const std::string& said) {
    const std::string before = "handed over the state after step ";
    std::vector<Change> changes;
    for (size_t at = said.find(before); at != std::string::npos; at = said.find(before, at + 1)) {
      Change& change = changes.emplace_back();
      change.step = std::strtoull(said.c_str() + at + before.size(), nullptr, 10);
      change.ranks = std::atoi(said.c_str() + said.find("; ", at) + 2);
    }
    return changes;
  }

  // Resumes with the new ranks at each change, and trains some steps after the last one.
  void ExpectLossesOfResumes(const std::string& log, std::vector<Change> changes) {
    const uint64_t logged = Losses(log).rbegin()->first;
    while (!changes.empty() && changes.back().step >= logged) changes.pop_back();
    ASSERT_FALSE(changes.empty());
    const std::string save = log + "-save", reference = log + "-reference";
    int ranks = 1;
    for (size_t i = 0; i <= changes.size(); ++i) {
      const uint64_t until =
          i < changes.size() ? changes[i].step : std::min(changes.back().step + kMore, logged);
      Words words = {
          "--ranks", absl::StrCat(ranks), "--steps", absl::StrCat(until), "--save", save, "--log",
          reference, "--progress",        "none"};
      if (i > 0) words.push_back("--resume");
      const CommandResult result = RunTrainer(Arguments(words));
      ASSERT_EQ(result.code, 0) << result.err;
      if (i < changes.size()) ranks = changes[i].ranks;
    }
    ExpectSameLosses(log, Losses(reference));
  }

  std::string WhyOf(const std::string& job) {
    v1::ListJobsResponse jobs;
    grpc::ClientContext context;
    EXPECT_TRUE(jobs_->ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
    for (const v1::JobInfo& info : jobs.jobs()) {
      if (info.job() == job) return info.sharing().why();
    }
    return "not there";
  }
};

TEST_F(Sharing, OfTwoRunsThatComeAndGo_GivesEachTheRanksThatAreLeftAndChangesNoLoss) {
  const std::string other_log = folder_ / "other-log";
  TrainerProcess run(Shared("scaled", log_), kWide);
  ASSERT_TRUE(run.WaitFor("handed over the state after step ", "start 2: goes on after step "))
      << run.output();
  EXPECT_EQ(LastChange(run.output())->ranks, 2) << "it is alone";

  TrainerProcess other(Shared("other", other_log), kWide);
  ASSERT_TRUE(run.WaitFor("start 3: goes on after step ")) << run.output();
  EXPECT_EQ(LastChange(run.output())->ranks, 1) << "the other run has the second rank";
  ASSERT_TRUE(WaitForLogged(&run, log_, LastChange(run.output())->step + kMore)) << run.output();
  EXPECT_TRUE(WaitUntil([&] { return !WhyOf("other").empty(); }));
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 128 + SIGINT) << run.output();

  ASSERT_TRUE(other.WaitFor("start 2: goes on after step ")) << other.output();
  ASSERT_TRUE(WaitForLogged(&other, other_log, LastChange(other.output())->step + kMore))
      << other.output();
  EXPECT_EQ(RanksOf(other), 2u) << "it is alone now";
  other.Signal(SIGINT);
  EXPECT_EQ(other.Wait(), 128 + SIGINT) << other.output();

  EXPECT_THAT(env_.MetricsPage(), HasSubstr("geminid_sharing_changes_total{outcome=\"done\"} "));
  ExpectLossesOfResumes(log_, ChangesOf(run.output()));
  ExpectLossesOfResumes(other_log, ChangesOf(other.output()));
}

}  // namespace
}  // namespace geminid::trainer
