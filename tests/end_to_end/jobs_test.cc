// Two runs of geminid-train and a device that has room for one, and what an operator does to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "tests/base/json_values.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/end_to_end/training_process.h"
#include "tools/geminictl/program/run.h"

namespace geminid {
namespace {

using base::At;
using base::JsonValue;
using base::MustParse;
using base::Texts;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Generous: the machine may be busy. What is tested is that nothing waits for ever.
constexpr int kSeconds = 60;
constexpr char kForHours[] = "1000000";

struct Bits {
  std::string weights;
  std::vector<std::string> losses;
  bool operator==(const Bits&) const = default;
};

class Jobs : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start({.device_memory = "4MiB"}).ok()); }

  std::vector<std::string> Run(const std::string& job, const std::string& steps,
                               const std::string& priority) const {
    return {"--model",         "gpt2-tiny", "--batch",    "2",     "--socket", env_.socket(),
            "--device-memory", "4MiB",      "--job",      job,     "--steps",  steps,
            "--report",        Report(job), "--priority", priority};
  }

  std::string Report(const std::string& job) const { return folder_ / job + ".json"; }

  Bits BitsOf(const std::string& job) const {
    std::stringstream written;
    written << std::ifstream(Report(job)).rdbuf();
    const JsonValue report = MustParse(written.str());
    return {At(report, "weights_sha256").text, Texts(At(report, "loss_hex"))};
  }

  // Trained once for all tests.
  Bits Undisturbed() const {
    static const Bits bits = [this] {
      TrainingProcess run(Run("alone", kSteps, "-1"));
      EXPECT_EQ(run.WaitForEnd(kSeconds), 0) << run.Words();
      return BitsOf("alone");
    }();
    return bits;
  }

  // geminictl's exit code and words.
  std::pair<int, std::string> Ctl(std::vector<std::string> arguments) const {
    std::ostringstream words;
    ctl::Environment environment;
    environment.out = &words;
    environment.err = &words;
    environment.variables = [](const std::string&) { return std::nullopt; };
    arguments.insert(arguments.end(), {"--socket", env_.socket()});
    const int code = ctl::RunGeminictl(arguments, environment);
    return {code, words.str()};
  }

  static constexpr char kSteps[] = "200";
  testing::DaemonEnv env_;
  base::TemporaryFolder folder_;
};

TEST_F(Jobs, LowOne_LeavesTheDeviceToAHighOneAndEndsWithItsOwnBits) {
  TrainingProcess low(Run("low", kSteps, "-1"));
  ASSERT_TRUE(low.WaitForWords("step 1/")) << low.Words();
  low.Signal(SIGSTOP);  // its last step must not come before the other one has begun
  TrainingProcess high(Run("high", kForHours, "0"));
  ASSERT_TRUE(high.WaitForWords("waits: job high is queued")) << high.Words();
  low.Signal(SIGCONT);
  ASSERT_TRUE(high.WaitForWords("step 1/")) << high.Words();
  ASSERT_TRUE(low.WaitForWords("waits: job low is preempted")) << low.Words();
  EXPECT_THAT(Ctl({"ls", "jobs"}).second, AllOf(HasSubstr("preempted"), HasSubstr("running")));
  kill(high.pid(), SIGINT);
  EXPECT_EQ(high.WaitForEnd(kSeconds), 128 + SIGINT) << high.Words();
  EXPECT_EQ(low.WaitForEnd(kSeconds), 0) << low.Words();
  EXPECT_EQ(BitsOf("low"), Undisturbed());
}

TEST_F(Jobs, EvictedTwice_EndsWithItsOwnBits) {
  TrainingProcess low(Run("low", kSteps, "-1"));
  ASSERT_TRUE(low.WaitForWords("step 1/")) << low.Words();
  for (int times = 1; times <= 2; ++times) {
    ASSERT_EQ(Ctl({"evict", "low", "--wait"}).first, 0);
    EXPECT_THAT(Ctl({"ls", "jobs"}).second, HasSubstr("preempted"));
    ASSERT_EQ(Ctl({"evict", "low", "--undo"}).first, 0);
  }
  EXPECT_EQ(low.WaitForEnd(kSeconds), 0) << low.Words();
  EXPECT_EQ(BitsOf("low"), Undisturbed());
}

// The optimizer's state is on the device, where it has no other place.
TEST_F(Jobs, KilledWhileItIsEvicted_WaitsAndGoesOnAfterTheSameStepWithItsOwnBits) {
  std::vector<std::string> restarts = Run("low", kSteps, "-1");
  restarts.insert(restarts.end(), {"--restarts", "1"});
  TrainingProcess low(restarts);
  ASSERT_TRUE(low.WaitForWords("step 1/")) << low.Words();
  ASSERT_EQ(Ctl({"evict", "low", "--wait"}).first, 0);
  const std::vector<pid_t> ranks = low.Children("geminid-train");
  ASSERT_EQ(ranks.size(), 1u);
  ASSERT_EQ(kill(ranks.front(), SIGKILL), 0);
  ASSERT_TRUE(low.WaitForWords("queued, position 1: the operator holds it")) << low.Words();
  ASSERT_EQ(Ctl({"evict", "low", "--undo"}).first, 0);
  EXPECT_EQ(low.WaitForEnd(kSeconds), 0) << low.Words();
  EXPECT_THAT(low.Words(), HasSubstr("start 2: goes on after step "));
  EXPECT_EQ(BitsOf("low").weights, Undisturbed().weights);
}

TEST_F(Jobs, StoppedWhileItIsPreempted_SavesAndGoesOnWithItsOwnBits) {
  std::vector<std::string> saves = Run("low", kSteps, "-1");
  saves.insert(saves.end(), {"--save", folder_ / "saved"});
  {
    TrainingProcess low(saves);
    ASSERT_TRUE(low.WaitForWords("step 1/")) << low.Words();
    ASSERT_EQ(Ctl({"evict", "low", "--wait"}).first, 0);
    kill(low.pid(), SIGTERM);
    EXPECT_EQ(low.WaitForEnd(kSeconds), 128 + SIGTERM) << low.Words();
    EXPECT_THAT(low.Words(), HasSubstr("by SIGTERM; saved in " + (folder_ / "saved")));
  }
  saves.emplace_back("--resume");
  TrainingProcess again(saves);
  EXPECT_EQ(again.WaitForEnd(kSeconds), 0) << again.Words();
  EXPECT_THAT(again.Words(), HasSubstr("goes on from"));
  EXPECT_EQ(BitsOf("low").weights, Undisturbed().weights);
}

TEST_F(Jobs, StoppedWhileItWaitsForAdmission_EndsWithTheSignal) {
  TrainingProcess first(Run("first", kForHours, "0"));
  ASSERT_TRUE(first.WaitForWords("step 1/")) << first.Words();
  TrainingProcess next(Run("next", kSteps, "0"));
  ASSERT_TRUE(next.WaitForWords("waits: job next is queued")) << next.Words();
  kill(next.pid(), SIGTERM);
  EXPECT_EQ(next.WaitForEnd(kSeconds), 128 + SIGTERM) << next.Words();
  EXPECT_THAT(next.Words(),
              HasSubstr("stopped while the rank waited for memory: job next is queued"));
}

TEST_F(Jobs, EndedByTheOperator_EndsWithAReasonAndLeavesRoom) {
  TrainingProcess low(Run("low", kForHours, "-1"));
  ASSERT_TRUE(low.WaitForWords("step 1/")) << low.Words();
  TrainingProcess next(Run("next", kSteps, "-1"));
  ASSERT_TRUE(next.WaitForWords("waits: job next is queued, position 1")) << next.Words();
  const auto [code, words] = Ctl({"end", "low", "--yes"});
  EXPECT_EQ(code, 0) << words;
  EXPECT_EQ(low.WaitForEnd(kSeconds), base::kExitAborted);
  EXPECT_THAT(low.Words(), HasSubstr("geminid-train: the job was ended on request (geminictl end)"));
  EXPECT_EQ(next.WaitForEnd(kSeconds), 0) << next.Words();
  EXPECT_EQ(BitsOf("next"), Undisturbed());
}

// A rank that was killed takes the other one with it, which does not hear that the job was ended.
TEST_F(Jobs, EndedBetweenADeathAndTheRestart_IsNotStartedAgain) {
  std::vector<std::string> restarts = Run("low", kForHours, "-1");
  restarts.insert(restarts.end(), {"--ranks", "2", "--restarts", "3"});
  *std::ranges::find(restarts, "4MiB") = "2MiB";  // for each rank
  TrainingProcess low(restarts);
  ASSERT_TRUE(low.WaitForWords("step 1/")) << low.Words();
  const std::vector<pid_t> ranks = low.Children("geminid-train");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(kill(ranks[0], SIGSTOP), 0);  // it hears nothing until it is killed
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  const auto [code, words] = Ctl({"end", "low", "--yes"});
  EXPECT_EQ(code, 0) << words;
  EXPECT_EQ(low.WaitForEnd(kSeconds), base::kExitAborted) << low.Words();
  EXPECT_THAT(low.Words(), HasSubstr("the job was ended on request (geminictl end)"));
  EXPECT_THAT(low.Words(), Not(HasSubstr("start 3")));
}

// Nobody is left who could answer the request.
TEST_F(Jobs, LauncherKilledBeforeItsRanksChange_EndsTheRequestAtOnce) {
  std::vector<std::string> changes = Run("low", kForHours, "-1");
  changes.insert(changes.end(), {"--max-ranks", "2"});
  TrainingProcess low(changes);
  ASSERT_TRUE(low.WaitForWords("step 1/")) << low.Words();
  const std::vector<pid_t> ranks = low.Children("geminid-train");
  ASSERT_EQ(ranks.size(), 1u);
  ASSERT_EQ(kill(ranks[0], SIGSTOP), 0);  // it does not take the request
  const auto scale = [this] { return Ctl({"scale", "low", "2", "--at-most", "0.1"}); };
  ASSERT_EQ(scale().first, base::kExitDeadline);
  EXPECT_THAT(scale().second, HasSubstr("was already asked for 2 ranks"));
  ASSERT_EQ(kill(low.pid(), SIGKILL), 0);
  const absl::Time give_up = absl::Now() + absl::Seconds(kSeconds / 2);
  std::string words;
  do {
    words = scale().second;
  } while (!absl::StrContains(words, "there is no job low") && absl::Now() < give_up);
  EXPECT_THAT(words, HasSubstr("there is no job low"));
}

TEST_F(Jobs, EndedWhileItWaits_EndsWithTheSameReasonAndCode) {
  TrainingProcess first(Run("first", kForHours, "0"));
  ASSERT_TRUE(first.WaitForWords("step 1/")) << first.Words();
  TrainingProcess next(Run("next", kSteps, "0"));
  ASSERT_TRUE(next.WaitForWords("waits: job next is queued")) << next.Words();
  const auto [code, words] = Ctl({"end", "next", "--yes"});
  EXPECT_EQ(code, 0) << words;
  EXPECT_EQ(next.WaitForEnd(kSeconds), base::kExitAborted) << next.Words();
  EXPECT_THAT(next.Words(), HasSubstr("geminid-train: the job was ended on request (geminictl end)"));
}

}  // namespace
}  // namespace geminid
