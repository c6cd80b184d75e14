// A rank dies, the daemon dies, the user gives up: the run ends within seconds, says why, and
// leaves no process and no file behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/end_to_end/training_process.h"

namespace geminid {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Generous: the machine may be busy. What is tested is that nothing waits for ever.
constexpr int kSeconds = 20;

class BadDays : public ::testing::Test {
 protected:
  // Starts a run that would take hours, and waits until it trains.
  void SetUp() override {
    ASSERT_TRUE(run_.WaitForWords("step 1/")) << run_.Words();
    ranks_ = run_.Children("geminid-train");
    daemons_ = run_.Children("geminid");
    ASSERT_EQ(ranks_.size(), 3u);
    ASSERT_EQ(daemons_.size(), 1u);
  }

  void ExpectNothingIsLeft() {
    for (pid_t pid : ranks_) EXPECT_TRUE(IsGone(pid, kSeconds)) << "rank process " << pid;
    for (pid_t pid : daemons_) EXPECT_TRUE(IsGone(pid, kSeconds)) << "daemon " << pid;
    for (pid_t pid : run_.Holders()) EXPECT_TRUE(IsGone(pid, kSeconds)) << "holder " << pid;
    EXPECT_THAT(run_.Leftovers(), IsEmpty());
  }

  TrainingProcess run_{{"--model", "gpt2-tiny", "--ranks", "3", "--batch", "3", "--steps",
                        "1000000", "--device-memory", "4MiB"}};
  std::vector<pid_t> ranks_;
  std::vector<pid_t> daemons_;
};

TEST_F(BadDays, RankThatIsKilled_StopsTheOthersAndIsNamed) {
  kill(ranks_[1], SIGKILL);
  const int code = run_.WaitForEnd(kSeconds);
  EXPECT_GT(code, 0);
  EXPECT_THAT(run_.Words(), HasSubstr("(pid " + std::to_string(ranks_[1]) + ")"));
  EXPECT_THAT(run_.Words(),
              AnyOf(HasSubstr("signal 9"), HasSubstr("SIGKILL"), HasSubstr("Killed")));
  ExpectNothingIsLeft();
}

TEST_F(BadDays, DaemonThatIsKilledAndCannotBeStartedAgain_EndsTheRunWithWhatItWaitedFor) {
  run_.RemoveDaemonProgram();
  kill(daemons_[0], SIGKILL);
  const int code = run_.WaitForEnd(kSeconds);
  EXPECT_GT(code, 0);
  EXPECT_THAT(run_.Words(), HasSubstr("the daemon at "));
  EXPECT_THAT(run_.Words(), HasSubstr("ended, and no other daemon took its place"));
  ExpectNothingIsLeft();
}

TEST_F(BadDays, InterruptedRun_LeavesNothing) {
  kill(run_.pid(), SIGINT);
  EXPECT_EQ(run_.WaitForEnd(kSeconds), 128 + SIGINT);
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace geminid
