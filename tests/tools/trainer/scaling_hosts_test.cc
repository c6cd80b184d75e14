// geminictl scale of runs over several hosts: the bits are those of resumes, whoever dies, and what
// cannot be leaves the run as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "tests/tools/trainer/scaled_over_hosts.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

using ScalingOverHosts = ScaledOverHosts;

TEST_F(ScalingOverHosts, ToAHostThatJoinsAndBack_HasTheBitsOfResumes) {
  const auto trainer = StartOnHosts(2);
  const v1::ScaleRequest more = Scale(4);
  ASSERT_EQ(more.state(), "done") << more.message() << trainer->output();
  RecordProperty("joined", more.message());
  EXPECT_THAT(more.message(), HasSubstr("goes on as 4 ranks after step "));
  EXPECT_EQ(RanksAt(first_), 2u);
  EXPECT_EQ(RanksAt(second_), 2u);
  const v1::ScaleRequest fewer = Scale(2);
  ASSERT_EQ(fewer.state(), "done") << fewer.message() << trainer->output();
  RecordProperty("left", fewer.message());
  EXPECT_EQ(RanksAt(first_), 2u);
  EXPECT_EQ(RanksAt(second_), 0u);
  EXPECT_TRUE(BecomesEmpty(1)) << "its agent has nothing to do";
  ExpectBitsOfResumes(trainer.get(), 2);
  EXPECT_TRUE(BecomesEmpty(0));
}

TEST_F(ScalingOverHosts, ToAnotherNumberOnTheSameHosts_HasTheBitsOfResumes) {
  const Words twelve = {"--batch", "12"};
  const auto trainer = StartOnHosts(4, twelve);
  const v1::ScaleRequest fewer = Scale(3);
  ASSERT_EQ(fewer.state(), "done") << fewer.message() << trainer->output();
  EXPECT_EQ(RanksAt(first_), 2u);
  EXPECT_EQ(RanksAt(second_), 1u);
  ExpectBitsOfResumes(trainer.get(), 3, twelve);
}

TEST_F(ScalingOverHosts, OfWhatCannotBe_IsRefusedWhileTheRunGoesOn) {
  const Words twelve = {"--batch", "12"};
  const auto trainer = StartOnHosts(4, twelve);
  const std::vector<std::pair<int, std::string>> refusals = {
      {6, "--hosts has 4 slots, but the run needs 6 ranks"},
      {5, "--batch 12: it cannot be divided among 5 ranks"}};
  for (const auto& [ranks, why] : refusals) {
    const v1::ScaleRequest end = Scale(ranks);
    EXPECT_EQ(end.state(), "refused") << ranks;
    EXPECT_THAT(end.message(), HasSubstr(why));
    EXPECT_THAT(end.message(), HasSubstr("; the job goes on as before"));
  }
  const v1::ScaleRequest moved = Move(first_, "delta");
  EXPECT_EQ(moved.state(), "refused");
  EXPECT_THAT(moved.message(), HasSubstr("its ranks are on 2 hosts"));
  EXPECT_EQ(RanksAtAll(), 4u);
  EXPECT_EQ(trainer->output().find("handed over"), std::string::npos) << trainer->output();
  ExpectBitsOfResumes(trainer.get(), 4, twelve);
}

TEST_F(ScalingOverHosts, WhileAHostIsMadeReady_IsTheOnlyChangeAndWaitsForIt) {
  const std::string goes = folder_ / "goes";
  const auto trainer = StartOnHosts(
      2, {}, {},
      absl::StrCat("[ $1 = ", second_, " ] && until [ -e ", goes, " ]; do sleep 0.02; done\n"));
  const v1::ScaleRequest first = Ask(first_, "", 4);
  v1::ScaleJobRequest second;
  second.set_job("moves");
  second.set_ranks(1);
  v1::ScaleRequest none;
  grpc::ClientContext context;
  const grpc::Status refused = hosts_.at(first_)->jobs->ScaleJob(&context, second, &none);
  EXPECT_THAT(refused.error_message(), HasSubstr("was already asked for 4 ranks"));
  ASSERT_TRUE(trainer->WaitFor(absl::StrCat("makes ", second_, " ready for 2 ranks")));
  ASSERT_TRUE(WaitForStep(*trainer, LastStep(log_) + 4)) << "it trains meanwhile";
  EXPECT_EQ(RanksAtAll(), 2u);
  std::ofstream(goes) << "go";
  const v1::ScaleRequest done = AwaitEnd(first_, first);
  EXPECT_EQ(done.state(), "done") << done.message() << trainer->output();
  EXPECT_EQ(RanksAtAll(), 4u);
}

TEST_F(ScalingOverHosts, ToAHostThatCannotBeReached_IsRefused) {
  const auto trainer = StartOnHosts(
      2, {}, {},
      absl::StrCat("[ $1 = ", second_, " ] && { echo no route to $1 >&2; exit 255; }\n"));
  const v1::ScaleRequest end = Scale(4);
  EXPECT_EQ(end.state(), "refused");
  EXPECT_THAT(end.message(), HasSubstr(second_ + " cannot be reached, or has no "));
  EXPECT_EQ(RanksAt(first_), 2u);
  ExpectBitsOfResumes(trainer.get(), 2);
}

// The launcher dies between the two groups, or while the next one begins.
TEST_F(ScalingOverHosts, OfALauncherThatIsKilled_LeavesNoProcess) {
  const auto trainer = StartOnHosts(2);
  Ask(first_, "", 4);
  ASSERT_TRUE(trainer->WaitFor("handed over the state")) << trainer->output();
  trainer->Signal(SIGKILL);
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(ScalingOverHosts, OfARankThatDiesWithoutARestartLeft_GoesOnWithFewerFromMemory) {
  const auto trainer = StartOnHosts(4, {"--min-ranks", "1"});
  ASSERT_TRUE(WaitForStep(*trainer, 3)) << trainer->output();
  for (const pid_t pid : network_->ProcessesOf(1)) {
    if (CommandLineOf(pid).starts_with("geminid-train: rank 3 ")) kill(pid, SIGKILL);
  }
  ASSERT_TRUE(trainer->WaitFor("; 2 ranks will go on", ": goes on after step "))
      << trainer->output();
  ExpectBitsOfResumes(trainer.get(), 2);
  EXPECT_TRUE(BecomesEmpty(1));
}

// --- less room than ranks ------------------------------------------------------------------------

class ScalingToASmallHost : public ScaledOverHosts {
 protected:
  void SetUp() override { SetUpWith("9MiB"); }
};

TEST_F(ScalingToASmallHost, ThatJoins_IsRefusedWithTheNumbers) {
  const auto trainer = StartOnHosts(2);
  const v1::ScaleRequest end = Scale(4);
  EXPECT_EQ(end.state(), "refused");
  EXPECT_THAT(end.message(), HasSubstr(second_ + ": the daemon at "));
  EXPECT_THAT(end.message(), HasSubstr("2 ranks need 16.0 MiB of device memory, 8.0 MiB each"));
  EXPECT_EQ(RanksAt(first_), 2u);
  EXPECT_EQ(trainer->output().find("handed over"), std::string::npos) << trainer->output();
}

TEST_F(ScalingToASmallHost, ThatHasRanksAlready_IsRefusedWithTheNumbers) {
  const Words twelve = {"--batch", "12"};
  const auto trainer = StartOnHosts(3, twelve);
  const v1::ScaleRequest end = Scale(4);
  EXPECT_EQ(end.state(), "refused");
  EXPECT_THAT(end.message(), HasSubstr("2 ranks need 16.0 MiB of device memory, 8.0 MiB each"));
  EXPECT_EQ(RanksAtAll(), 3u);
  ExpectBitsOfResumes(trainer.get(), 3, twelve);
}

// --- deaths --------------------------------------------------------------------------------------

struct DeathOverHosts {
  int before = 0, after = 0;  // ranks
  int rank = 0;
  const char* point = "";
  bool changes = false;  // it goes on as the number after
  bool of_host = false;  // the rank's agent dies, with all ranks of its host
};

class DeathsOverHosts : public ScaledOverHosts,
                        public ::testing::WithParamInterface<DeathOverHosts> {};

TEST_P(DeathsOverHosts, AtAnyInstant_LeaveARunOfTheOldOrTheNewNumberOfRanks) {
  const DeathOverHosts& death = GetParam();
  const std::string died = folder_ / "died";
  const Words more = {"--batch", "12", "--restarts", "2"};
  const auto trainer = StartOnHosts(
      death.before, more,
      Dying(absl::StrCat(death.rank, " ", death.point), died, death.of_host ? SIGKILL : 0));
  const v1::ScaleRequest end = Scale(death.after);
  EXPECT_EQ(end.state(), death.changes ? "done" : "refused") << end.message();
  ASSERT_TRUE(WaitForStep(*trainer, LastStep(log_) + 3)) << trainer->output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody died";
  EXPECT_EQ(RanksAtAll(), static_cast<uint32_t>(death.changes ? death.after : death.before))
      << trainer->output();
  ExpectBitsOfResumes(trainer.get(), death.changes ? death.after : death.before, {"--batch", "12"});
}

INSTANTIATE_TEST_SUITE_P(Points, DeathsOverHosts,
                         ::testing::Values(DeathOverHosts{4, 2, 3, "handover begun"},
                                           DeathOverHosts{4, 2, 2, "shards handed over"},
                                           DeathOverHosts{4, 3, 0, "all shards handed over"},
                                           DeathOverHosts{4, 3, 2, "handover complete", true},
                                           DeathOverHosts{4, 2, 0, "handover complete", true},
                                           DeathOverHosts{4, 2, 3, "handover complete", true, true},
                                           DeathOverHosts{4, 3, 2, "state taken over", true},
                                           DeathOverHosts{2, 4, 3, "state taken over", true},
                                           DeathOverHosts{2, 4, 2, "state taken over", false, true},
                                           DeathOverHosts{2, 4, 2, "step recorded", true},
                                           DeathOverHosts{4, 2, 0, "state released", true}),
                         [](const auto& of) {
                           std::string name =
                               absl::StrCat("From", of.param.before, "To", of.param.after,
                                            of.param.of_host ? "_HostOf" : "_", "Rank",
                                            of.param.rank, "_", of.param.point);
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

// Its ranks alone have their part of the state.
TEST_F(ScalingOverHosts, OfAHostThatIsLostBeforeTheStateIsWhole_EndsTheRunAndSaysWhich) {
  const std::string died = folder_ / "died";
  const auto trainer = StartOnHosts(4, {}, Dying("3 handover begun", died, SIGKILL));
  Ask(first_, "", 2);
  EXPECT_EQ(trainer->Wait(), base::kExitUnavailable) << trainer->output();
  EXPECT_THAT(trainer->output(), HasSubstr(second_));
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

}  // namespace
}  // namespace geminid::trainer
