// Runs that continue with another number of ranks by request. Their losses are those of a run that
// was resumed from a checkpoint with this number. Impossible requests leave the run as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "tests/tools/trainer/scaled_run.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

struct Case {
  int before = 1;
  int after = 2;
  Words flags;
};

class ScalingAuto : public ScalingBase, public ::testing::Test {};
class Scaling : public ScalingBase, public ::testing::TestWithParam<Case> {};

TEST_P(Scaling, ByRequest_GoesOnWithTheLossesOfAResumeWithSoManyRanks) {
  const Case& is = GetParam();
  TrainerProcess trainer(
      Arguments(is.flags + Words{"--ranks", absl::StrCat(is.before), "--max-ranks", "4", "--steps",
                                 kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  const v1::ScaleRequest done = AwaitEnd(Ask(static_cast<uint32_t>(is.after)));
  EXPECT_EQ(done.state(), "done") << done.message() << trainer.output();
  ASSERT_TRUE(trainer.WaitFor("handed over the state after step ", "start 2: goes on after step "))
      << trainer.output();
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->ranks, is.after);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, change->step + kMore)) << trainer.output();
  EXPECT_EQ(RanksOf(trainer), static_cast<size_t>(is.after));
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  ExpectSameLosses(log_, Reference(is.before, *change, is.flags));
}

INSTANTIATE_TEST_SUITE_P(
    Groups, Scaling,
    ::testing::Values(Case{1, 2, {"--optimizer", "adamw"}},
                      Case{2, 1, {"--optimizer", "came", "--state-dtype", "bf16"}},
                      Case{2, 4, {"--optimizer", "adafactor"}},
                      Case{2, 4, {"--optimizer", "adamw", "--state-dtype", "bf16"}},
                      Case{2, 1, {"--optimizer", "adamw"}}, Case{2, 4, {"--loss-scale", "dynamic"}},
                      Case{2, 4, {"--state-disk", "FOLDER"}},
                      Case{1, 2, {"--sampling", "shuffle", "--accumulate", "2"}}),
    [](const auto& of) { return absl::StrCat("Case", of.index); });

// The axes stay. Ranks that start or end belong to the axis data.
INSTANTIATE_TEST_SUITE_P(
    Meshes, Scaling,
    ::testing::Values(
        Case{2, 4, {"--parallel", "pipeline=2"}},
        Case{4,
             2,
             {"--parallel", "pipeline=interleaved:2:chunks=2", "--layers", "4", "--accumulate",
              "2"}},
        Case{2, 4, {"--parallel", "pipeline=zbv:2", "--layers", "4", "--accumulate", "2"}},
        Case{2, 4, {"--parallel", "tensor=1d:2"}},
        Case{4, 2, {"--parallel", "tensor=1d-sequence:2", "--model", "llama-tiny"}},
        Case{2, 4, {"--parallel", "sequence=ulysses:2"}},
        Case{4, 2, {"--parallel", "sequence=ring:2"}},
        Case{2, 4, {"--parallel", "expert=2", "--model", "mixtral-tiny", "--balance-loss", "0"}},
        Case{4, 2, {"--parallel", "zero=2"}}),
    [](const auto& of) { return absl::StrCat("Case", of.index); });

// The chosen mesh depends on the machine, and so do the last bits.
TEST_F(ScalingAuto, OfAMeshThatTheRunChooses_ChoosesAnew) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--parallel", "auto", "--steps", kForever,
                                    "--log", log_, "--progress", "lines"}),
                         kWide);
  const v1::ScaleRequest done = AwaitEnd(Ask(4));
  EXPECT_EQ(done.state(), "done") << done.message();
  ASSERT_TRUE(trainer.WaitFor("parallel auto: ", "parallel auto: ")) << trainer.output();
  ASSERT_TRUE(trainer.WaitFor("start 2: goes on after step ")) << trainer.output();
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value());
  ASSERT_TRUE(WaitForLogged(&trainer, log_, change->step + kMore)) << trainer.output();
  EXPECT_EQ(RanksOf(trainer), 4u);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

// Only the new ranks notice this.
TEST_F(ScalingAuto, WhereNoMeshHasSoManyRanks_GoesBackToTheOldNumber) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--parallel", "auto", "--steps", kForever,
                                    "--log", log_, "--progress", "lines"}),
                         kWide);
  const v1::ScaleRequest refused = AwaitEnd(Ask(3));
  EXPECT_EQ(refused.state(), "refused");
  EXPECT_THAT(refused.message(), HasSubstr("the job goes on as 2 ranks"));
  ASSERT_TRUE(trainer.WaitFor("the run goes on with 2 ranks as before", "goes on after step "))
      << trainer.output();
  ASSERT_TRUE(WaitForLogged(&trainer, log_, LastChange(trainer.output())->step + kMore))
      << trainer.output();
  EXPECT_EQ(RanksOf(trainer), 2u);
  EXPECT_EQ(HandoverBytes(trainer), kRecordBytes) << "state is left that nobody needs";
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

// --- refusals ------------------------------------------------------------------------------------

class ScalingRefusals : public ScalingBase, public ::testing::Test {
 protected:
  uint64_t FreeHostBytes() {
    return env_.daemon().hub().Inspect([](const core::Engine& engine, const auto&) {
      return engine.ledger().Totals(core::kHostAccount).free_bytes;
    });
  }

  // The run goes on unchanged.
  void ExpectGoesOn(TrainerProcess* trainer, size_t ranks) {
    ASSERT_TRUE(WaitForLogged(trainer, log_, Losses(log_).rbegin()->first + 2))
        << trainer->output();
    EXPECT_EQ(RanksOf(*trainer), ranks);
  }
};

TEST_F(ScalingRefusals, OfNumbersThatTheRunCannotHave_LeaveItAsItWas) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  const v1::ScaleRequest uneven = AwaitEnd(Ask(3));
  EXPECT_EQ(uneven.state(), "refused");
  EXPECT_THAT(uneven.message(), HasSubstr("--batch"));
  const v1::ScaleRequest many = AwaitEnd(Ask(32));
  EXPECT_EQ(many.state(), "refused");
  EXPECT_THAT(many.message(), HasSubstr("--batch"));
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, OfNumbersThatTheMeshCannotHave_LeaveItAsItWas) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--parallel", "pipeline=2", "--steps", kForever,
                                    "--log", log_, "--progress", "lines"}),
                         kWide);
  for (const uint32_t ranks : {1u, 3u}) {
    const v1::ScaleRequest refused = AwaitEnd(Ask(ranks));
    EXPECT_EQ(refused.state(), "refused");
    EXPECT_THAT(refused.message(), HasSubstr("--parallel")) << ranks;
  }
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

// The first rank of another group would open the log again, and nobody would learn that lines are
// missing.
TEST_F(ScalingRefusals, OfARunWhoseLogHasFailed_SayWhy) {
  // This file can be opened, but refuses lines of JSON.
  const std::string log = "/proc/self/oom_score_adj";
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log, "--progress", "lines"}), kWide);
  ASSERT_TRUE(trainer.WaitFor("the log ends before step ")) << trainer.output();
  const v1::ScaleRequest refused = AwaitEnd(Ask(4));
  EXPECT_EQ(refused.state(), "refused");
  EXPECT_THAT(refused.message(), HasSubstr("the run's log has failed"));
  EXPECT_EQ(RanksOf(trainer), 2u);
  trainer.Signal(SIGINT);
  EXPECT_NE(trainer.Wait(), 0) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr(log));
}

// The new ranks would read the data again.
TEST_F(ScalingRefusals, OfARunWhoseDataHasGrown_NameTheFile) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  std::ofstream(text_, std::ios::app) << "more";
  const v1::ScaleRequest refused = AwaitEnd(Ask(4));
  EXPECT_EQ(refused.state(), "refused");
  EXPECT_THAT(refused.message(), HasSubstr("'" + text_ + "' has 3004 bytes and had 3000"));
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

// Only the new ranks notice this, and the old number of ranks would not resume either.
TEST_F(ScalingRefusals, OfARunWhoseDataHasOtherBytes_EndTheRunThatSaysBoth) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  std::fstream(text_, std::ios::in | std::ios::out) << "#";
  Ask(4);
  EXPECT_EQ(trainer.Wait(), 10) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("--text is 3000 bytes, CRC-32C "));
  EXPECT_THAT(trainer.output(), HasSubstr("without --save the steps so far are lost"));
}

TEST_F(ScalingRefusals, WithoutRoomOnTheDevice_SayHowMuchIsMissing) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--batch", "16", "--steps", kForever, "--log",
                                    log_, "--progress", "lines"}),
                         kWide);
  const v1::ScaleRequest many = AwaitEnd(Ask(16));
  EXPECT_EQ(many.state(), "refused");
  EXPECT_THAT(many.message(), HasSubstr("128 MiB of device memory"));
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, OfARunWithoutALauncher_SayHowToStartIt) {
  TrainerProcess trainer(
      Arguments({"--ranks", "1", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  v1::ScaleJobRequest request;
  request.set_job("scaled");
  request.set_ranks(2);
  v1::ScaleRequest scale;
  grpc::ClientContext context;
  const grpc::Status status = jobs_->ScaleJob(&context, request, &scale);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--max-ranks"));
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, WithoutHostMemoryForTheState_SayTheNumbers) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  // Another job takes all memory except less than the state needs.
  constexpr uint64_t kLeft = uint64_t{1} << 16;
  ConnectOptions options;
  options.socket = env_.socket();
  options.job = "other";
  const absl::StatusOr<std::unique_ptr<Session>> other = Session::Connect(options);
  ASSERT_TRUE(other.ok()) << other.status();
  const uint64_t free = FreeHostBytes();
  ASSERT_GT(free, kLeft);
  const auto taken = (*other)->Allocate({{"ballast", ChunkKind::kShared, free - kLeft}});
  ASSERT_TRUE(taken.ok()) << taken.status();
  const v1::ScaleRequest refused = AwaitEnd(Ask(4));
  EXPECT_EQ(refused.state(), "refused");
  EXPECT_THAT(refused.message(), HasSubstr("hold the state a second time"));
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, OfASecondRequestBeforeTheFirstIsDone_NameTheFirst) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  const v1::ScaleRequest first = Ask(4);
  v1::ScaleJobRequest request;
  request.set_job("scaled");
  request.set_ranks(1);
  v1::ScaleRequest scale;
  grpc::ClientContext context;
  const grpc::Status second = jobs_->ScaleJob(&context, request, &scale);
  EXPECT_EQ(second.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(second.error_message(), HasSubstr("was already asked for 4 ranks"));
  EXPECT_EQ(AwaitEnd(first).state(), "done");
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

}  // namespace
}  // namespace geminid::trainer
