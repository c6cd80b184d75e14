// Ranks, launchers and daemons die, or get signals, while a run changes its number of ranks. The
// run goes on with the old or the new number, and with the losses of a resume from a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/counter_random.h"
#include "base/exit_code.h"
#include "client/checkpoint/folder.h"
#include "tests/base/long_tests.h"
#include "tests/tools/trainer/scaled_run.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

class ScalingDeaths : public ScalingBase, public ::testing::TestWithParam<Death> {};

TEST_P(ScalingDeaths, AtAnyInstant_LeaveARunOfTheOldOrTheNewNumberOfRanks) {
  const Death& death = GetParam();
  const std::string died = folder_ / "died";
  TrainerProcess trainer(Arguments({"--ranks", "2", "--restarts", "2", "--steps", kForever, "--log",
                                    log_, "--progress", "lines", "--optimizer", "came"}),
                         kWide, DyingAt(death, died));
  const v1::ScaleRequest end = AwaitEnd(Ask(4));
  EXPECT_EQ(end.state(), death.before_the_change ? "refused" : "done") << end.message();
  // Waits for any later start, because a start whose first rank dies does not print this.
  ASSERT_TRUE(trainer.WaitFor(": goes on after step ", "step ")) << trainer.output();
  const std::optional<Change> change = LastChange(trainer.output());
  EXPECT_EQ(change.has_value(), !death.before_the_change) << trainer.output();
  const uint64_t from = change.has_value() ? change->step : Losses(log_).rbegin()->first;
  ASSERT_TRUE(WaitForLogged(&trainer, log_, from + kMore)) << trainer.output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody died";
  EXPECT_EQ(RanksOf(trainer), death.before_the_change ? 2u : 4u) << trainer.output();
  EXPECT_EQ(HandoverBytes(trainer), kRecordBytes) << "state is left that nobody needs";
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  const Change reference = change.value_or(Change{from, 2});
  ExpectSameLosses(log_, Reference(2, reference, {"--optimizer", "came"}));
}

INSTANTIATE_TEST_SUITE_P(
    Points, ScalingDeaths,
    ::testing::Values(Death{0, "handover begun", true}, Death{1, "handover begun", true},
                      Death{0, "shards handed over", true}, Death{1, "shards handed over", true},
                      Death{0, "all shards handed over", true},
                      Death{0, "handover complete", false}, Death{1, "handover complete", false},
                      Death{0, "state taken over", false}, Death{3, "state taken over", false},
                      Death{2, "step recorded", false}, Death{0, "state released", false}),
    [](const auto& of) {
      std::string name = absl::StrCat("Rank", of.param.rank, "_", of.param.point);
      std::ranges::replace(name, ' ', '_');
      return name;
    });

class ScalingSignals : public ScalingBase, public ::testing::TestWithParam<const char*> {};

// At the first point the old ranks have asked each other for the last time whether to end. At the
// second point the new ranks are there, but have not trained.
TEST_P(ScalingSignals, DuringAChange_EndTheRunWithItsStateSaved) {
  const std::string died = folder_ / "signalled", save = folder_ / "save";
  const Words run = Arguments({"--ranks", "2", "--log", log_, "--save", save});
  TrainerProcess trainer(run + Words{"--steps", kForever, "--progress", "lines"}, kWide,
                         DyingAt({0, GetParam()}, died, {"GEMINID_TEST_SIGNAL=15"}));
  Ask(4);
  EXPECT_EQ(trainer.Wait(), 128 + SIGTERM) << trainer.output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody was signalled";
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value()) << trainer.output();
  // At most the step in progress is completed.
  const uint64_t last = Losses(log_).rbegin()->first;
  EXPECT_LE(last, change->step + 1);
  EXPECT_THAT(trainer.output(),
              HasSubstr(absl::StrCat("stopped at step ", last, " of ", kForever, " by SIGTERM")));
  EXPECT_TRUE(std::filesystem::is_directory(save + "/" + checkpoint::NameOfStep(last)));
}

INSTANTIATE_TEST_SUITE_P(Points, ScalingSignals,
                         ::testing::Values("all shards handed over", "state taken over"),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

class ScalingAfterDeaths : public ScalingBase, public ::testing::Test {};

TEST_F(ScalingAfterDeaths, WithoutARestartLeft_GoOnWithFewerRanksFromMemory) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--min-ranks", "1", "--steps", kForever,
                                    "--log", log_, "--progress", "lines"}),
                         kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  const std::vector<pid_t> ranks = trainer.Children("geminid-train: rank 1");
  ASSERT_EQ(ranks.size(), 1u);
  const absl::Time killed = absl::Now();
  kill(ranks[0], SIGKILL);
  ASSERT_TRUE(trainer.WaitFor("handed over the state after step ", "start 3: goes on after step "))
      << trainer.output();
  const absl::Duration took = absl::Now() - killed;
  RecordProperty("milliseconds", static_cast<int>(absl::ToInt64Milliseconds(took)));
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->ranks, 1);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, change->step + kMore)) << trainer.output();
  EXPECT_EQ(RanksOf(trainer), 1u);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  EXPECT_THAT(env_.MetricsPage(), HasSubstr("geminid_jobs_shrunk_total 1\n"));
  ExpectSameLosses(log_, Reference(2, *change, {}));
}

// The launcher stops as soon as the state is complete, so no rank is attached when the daemon dies.
// The new ranks start before the next daemon.
TEST_F(ScalingAfterDeaths, OfTheDaemonBetweenTheGroups_LeaveTheNewNumberOfRanks) {
  const std::string stopped = folder_ / "stopped";
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}), kWide,
      DyingAt({0, "handover complete"}, stopped, {absl::StrCat("GEMINID_TEST_SIGNAL=", SIGSTOP)}));
  Ask(4);
  ASSERT_TRUE(WaitUntil([&] { return std::ifstream(stopped).good() && RanksOf(trainer) == 0; }));
  env_.Stop();
  trainer.Signal(SIGCONT);
  ASSERT_TRUE(WaitUntil([&] { return RanksOf(trainer) == 4; })) << trainer.output();
  StartDaemon();
  ASSERT_TRUE(trainer.WaitFor("handed over the state after step ", "start 2: goes on after step "))
      << trainer.output();
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value());
  ASSERT_TRUE(WaitForLogged(&trainer, log_, change->step + kMore)) << trainer.output();
  EXPECT_EQ(RanksOf(trainer), 4u);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  ExpectSameLosses(log_, Reference(2, *change, {}));
}

// A rank that lives and does nothing more: it opens a FIFO that nobody writes to.
class HangingRanks : public ScalingBase {
 protected:
  Words HangingAt(const Death& hang) const {
    const std::string fifo = folder_ / "fifo";
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    return DyingAt(hang, hung_, {"GEMINID_TEST_HOLD=" + fifo});
  }
  Words OfTwoRanks(const Words& more) const {
    return Arguments(
        Words{"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"} + more);
  }
  bool WaitForHang() const {
    return WaitUntil([&] { return std::ifstream(hung_).good(); });
  }
  void ExpectThatARequestEnds(TrainerProcess* trainer) {
    v1::EndJobRequest request;
    request.set_job("scaled");
    v1::EndJobResponse ended;
    grpc::ClientContext context;
    const grpc::Status status = jobs_->EndJob(&context, request, &ended);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(trainer->Wait(), base::kExitAborted) << trainer->output();
    EXPECT_THAT(trainer->output(), HasSubstr("the job was ended on request (geminictl end)"));
  }

  const std::string hung_ = folder_ / "hung";
};

// --timeout is longer than the test may take, so only the request can end these runs.
const Words kPatient = {"--timeout", "10000"};

class TrainingHangs : public HangingRanks, public ::testing::Test {};

TEST_F(TrainingHangs, OfAJobThatIsEndedOnRequest_EndTheRunWithThatReason) {
  for (const int rank : {0, 1}) {
    TrainerProcess trainer(OfTwoRanks(kPatient), kWide, HangingAt({rank, "step agreed"}));
    ASSERT_TRUE(WaitForHang()) << trainer.output();
    ExpectThatARequestEnds(&trainer);
    std::filesystem::remove(hung_);
    std::filesystem::remove(folder_ / "fifo");
  }
}

class ScalingHangs : public HangingRanks, public ::testing::TestWithParam<Death> {};

TEST_P(ScalingHangs, OfAJobThatIsEndedOnRequest_EndTheRunWithThatReason) {
  TrainerProcess trainer(OfTwoRanks(kPatient), kWide, HangingAt(GetParam()));
  Ask(4);
  ASSERT_TRUE(WaitForHang()) << trainer.output();
  ExpectThatARequestEnds(&trainer);
}

// The same rule as between two steps: --timeout, and here the time to copy the state, which is less
// than a second.
TEST_P(ScalingHangs, LongerThanTheTimeout_AreNoticedAsInTraining) {
  TrainerProcess trainer(OfTwoRanks({"--timeout", "1", "--restarts", "1"}), kWide,
                         HangingAt(GetParam()));
  const v1::ScaleRequest asked = Ask(4);
  ASSERT_TRUE(WaitForHang()) << trainer.output();
  const v1::ScaleRequest end = AwaitEnd(asked);
  EXPECT_EQ(end.state(), GetParam().before_the_change ? "refused" : "done") << end.message();
  ASSERT_TRUE(trainer.WaitFor(": goes on after step ", "step ")) << trainer.output();
  EXPECT_EQ(RanksOf(trainer), GetParam().before_the_change ? 2u : 4u) << trainer.output();
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

INSTANTIATE_TEST_SUITE_P(Points, ScalingHangs,
                         ::testing::Values(Death{1, "handover begun", true},
                                           Death{1, "all shards handed over", false},
                                           Death{1, "handover complete", false}),
                         [](const auto& of) {
                           std::string name = of.param.point;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

class ScalingRandomDeaths : public ScalingBase, public ::testing::TestWithParam<uint64_t> {
 protected:
  // Kills some ranks and returns their number.
  uint64_t KillSome(const TrainerProcess& trainer) const {
    constexpr uint64_t kMostDeaths = 3,
                       kLongestPause = 400;  // milliseconds; a change takes so long
    constexpr uint64_t kMostTries = 1000;
    const uint64_t deaths = 1 + base::RandomBits(GetParam(), 0) % kMostDeaths;
    uint64_t killed = 0;
    for (uint64_t i = 1; killed < deaths && i < kMostTries; ++i) {
      const uint64_t pause = base::RandomBits(GetParam(), 2 * i) % kLongestPause;
      absl::SleepFor(absl::Milliseconds(pause));
      const std::vector<pid_t> ranks = trainer.Children("geminid-train: rank ");
      if (ranks.empty()) continue;  // one group has ended, and the next has not started
      const pid_t victim = ranks[base::RandomBits(GetParam(), 2 * i + 1) % ranks.size()];
      killed += kill(victim, SIGKILL) == 0 ? 1 : 0;
    }
    return killed;
  }
};

TEST_P(ScalingRandomDeaths, DuringAChange_LeaveARunOfTheOldOrTheNewNumberOfRanks) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--restarts", "16", "--steps", kForever,
                                    "--log", log_, "--progress", "lines"}),
                         kWide);
  const v1::ScaleRequest asked = Ask(4);
  const uint64_t deaths = KillSome(trainer);
  const v1::ScaleRequest end = AwaitEnd(asked);
  EXPECT_TRUE(end.state() == "done" || end.state() == "refused") << end.state();
  const uint64_t last = Losses(log_).rbegin()->first;
  ASSERT_TRUE(WaitForLogged(&trainer, log_, last + kMore + 2)) << trainer.output();
  const size_t ranks = RanksOf(trainer);
  EXPECT_TRUE(ranks == 2 || ranks == 4) << ranks;
  EXPECT_EQ(HandoverBytes(trainer), kRecordBytes) << "state is left that nobody needs";
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  Change change = LastChange(trainer.output()).value_or(Change{last, 2});
  change.ranks = static_cast<int>(ranks);  // the run may have returned to the old number
  ExpectSameLosses(log_, Reference(2, change, {}), deaths);
  if (HasFailure()) ADD_FAILURE() << trainer.output();
}

INSTANTIATE_TEST_SUITE_P(Seeds, ScalingRandomDeaths,
                         ::testing::Range(uint64_t{0}, uint64_t{LongTests() ? 40u : 4u}));

}  // namespace
}  // namespace geminid::trainer
