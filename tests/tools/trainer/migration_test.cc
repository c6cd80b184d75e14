// Runs that move to another host's daemon by request have the weights of a run that stayed.
// Impossible requests, and hosts that are lost, leave the run where it was.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/unique_fd.h"
#include "tests/tools/trainer/moved_run.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

class Migration : public MovedRun {};

TEST_F(Migration, ToOthersAndBack_EndsWithTheWeightsOfARunThatStayed) {
  const auto trainer = Start(Shell());
  const v1::ScaleRequest there = Move("home", "beta");
  ASSERT_EQ(there.state(), "done") << there.message() << trainer->output();
  EXPECT_THAT(there.message(), HasSubstr("goes on at beta as 2 ranks after step "));
  EXPECT_EQ(RanksAt("home"), 0u);
  EXPECT_EQ(RanksAt("beta"), 2u);
  const v1::ScaleRequest on = Move("beta", "gamma");  // through a launcher on neither host
  ASSERT_EQ(on.state(), "done") << on.message() << trainer->output();
  EXPECT_EQ(RanksAt("beta"), 0u);
  EXPECT_EQ(RanksAt("gamma"), 2u);
  const v1::ScaleRequest back = Move("gamma", "localhost");
  ASSERT_EQ(back.state(), "done") << back.message() << trainer->output();
  EXPECT_EQ(RanksAt("gamma"), 0u);
  EXPECT_EQ(RanksAt("home"), 2u);
  EXPECT_THAT(hosts_.at("home")->env.MetricsPage(),
              HasSubstr("geminid_move_requests_total{outcome=\"done\"} 1\n"));
  ExpectBitsOfARunThatStays(trainer.get());
}

TEST_F(Migration, WithAnotherNumberOfRanksAndAgainThere_TakesEachNumber) {
  const auto trainer = Start(Shell());
  const v1::ScaleRequest there = Move("home", "beta", 4);
  ASSERT_EQ(there.state(), "done") << there.message() << trainer->output();
  EXPECT_EQ(RanksAt("beta"), 4u);
  const v1::ScaleRequest fewer = Move("beta", "", 1);  // as a request of geminictl scale
  EXPECT_EQ(fewer.state(), "done") << fewer.message() << trainer->output();
  EXPECT_EQ(RanksAt("beta"), 1u);
  EXPECT_EQ(RanksAt("home"), 0u);
  trainer->Signal(SIGINT);
  EXPECT_EQ(trainer->Wait(), 128 + SIGINT) << trainer->output();
}

TEST_F(Migration, OfARunThatAnAgentHasStarted_IsTheSame) {
  const std::string file = folder_.Write("hosts", "gamma slots=2\n");
  const auto trainer = Start(Shell(), {"--hosts", file});
  const v1::ScaleRequest there = Move("gamma", "beta");
  ASSERT_EQ(there.state(), "done") << there.message() << trainer->output();
  EXPECT_EQ(RanksAt("gamma"), 0u);
  EXPECT_EQ(RanksAt("beta"), 2u);
  ExpectBitsOfARunThatStays(trainer.get());
}

TEST_F(Migration, OfARunWhoseRanksTheDaemonChooses_LeavesThatToTheOtherDaemon) {
  const auto trainer = Start(Shell(), {"--ranks", "2:4"});
  const v1::ScaleRequest there = Move("home", "beta");
  ASSERT_EQ(there.state(), "done") << there.message() << trainer->output();
  ASSERT_TRUE(WaitForStep(*trainer, LastStep(log_) + 4)) << trainer->output();
  v1::ListJobsResponse jobs;
  grpc::ClientContext context;
  ASSERT_TRUE(hosts_.at("beta")->jobs->ListJobs(&context, {}, &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_TRUE(jobs.jobs(0).has_sharing());
}

TEST_F(Migration, ToAHostThatCannotHaveTheRun_IsRefusedWhileTheRunGoesOn) {
  AddHost("small", "9MiB");
  AddHost("drained", "64MiB");
  {
    v1::DrainRequest drain;
    v1::DrainResponse drained;
    grpc::ClientContext context;
    ASSERT_TRUE(hosts_.at("drained")->jobs->Drain(&context, drain, &drained).ok());
  }
  const auto trainer =
      Start(Shell("case $1 in old) echo geminid-host 1 0.0.9 abc; sleep 60;; esac\n"));
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {"nowhere", "nowhere cannot be reached, or has no "},
      {"-oProxyCommand=touch", "it begins with '-'"},
      {"localhost", "the run is at this host already"},
      {"old", "old has geminid-train 0.0.9 where this one is "},
      {"small", "2 ranks need 16.0 MiB of device memory, 8.0 MiB each, and "},
      {"drained", "it drains and admits no job"}};
  for (const auto& [host, why] : refusals) {
    const v1::ScaleRequest end = Move("home", host);
    EXPECT_EQ(end.state(), "refused") << host;
    EXPECT_THAT(end.message(), HasSubstr(why));
    EXPECT_THAT(end.message(), HasSubstr("; the job goes on as before"));
  }
  EXPECT_EQ(RanksAt("home"), 2u);
  const v1::ScaleRequest there = Move("home", "beta");
  EXPECT_EQ(there.state(), "done") << there.message() << trainer->output();
  ExpectBitsOfARunThatStays(trainer.get());
  const std::string& said = trainer->output();
  EXPECT_EQ(said.find("handed over the state"), said.rfind("handed over the state"))
      << "it has stopped for a host that cannot have it: " << said;
}

TEST_F(Migration, ToAHostWithOtherData_IsRefused) {
  const std::string here = folder_ / "here", there = folder_ / "there";
  for (const std::string& folder : {here, there}) std::filesystem::create_directory(folder);
  std::filesystem::copy(text_, here + "/text");
  std::ofstream(there + "/text") << std::string(3000, 'x');
  std::filesystem::create_directory_symlink(here, folder_ / "data");
  // On the other host the path has another file.
  const auto trainer = Start(Shell("ln -sfn " + there + " " + (folder_ / "data") + "\n"),
                             {"--text", folder_ / "data/text"});
  const v1::ScaleRequest end = Move("home", "beta");
  EXPECT_EQ(end.state(), "refused");
  EXPECT_THAT(end.message(), HasSubstr("the data at this host differs: 3000 bytes, CRC-32C "));
  EXPECT_EQ(RanksAt("home"), 2u);
}

TEST_F(Migration, WhileAHostIsMadeReady_IsTheOnlyChangeAndWaitsForIt) {
  const std::string goes = folder_ / "goes";
  const auto trainer = Start(Shell("until [ -e " + goes + " ]; do sleep 0.02; done\n"));
  const v1::ScaleRequest first = Ask("home", "beta");
  const uint64_t step = LastStep(log_);
  v1::ScaleJobRequest second;
  second.set_job("moves");
  second.set_ranks(4);
  v1::ScaleRequest none;
  grpc::ClientContext context;
  const grpc::Status refused = hosts_.at("home")->jobs->ScaleJob(&context, second, &none);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("was already asked to go on at beta with 2 ranks"));
  ASSERT_TRUE(WaitForStep(*trainer, step + 4)) << "it trains meanwhile: " << trainer->output();
  EXPECT_EQ(RanksAt("home"), 2u);
  std::ofstream(goes) << "go";
  const v1::ScaleRequest done = AwaitEnd("home", first);
  EXPECT_EQ(done.state(), "done") << done.message() << trainer->output();
  ExpectBitsOfARunThatStays(trainer.get());
}

TEST_F(Migration, WhileAHostDoesNotAnswer_DoesNotHoldUpTheEndOfTheRun) {
  const auto trainer = Start(Shell("exec sleep 600\n"));
  Ask("home", "beta");
  ASSERT_TRUE(trainer->WaitFor("makes beta ready to go on there")) << trainer->output();
  trainer->Signal(SIGINT);
  ASSERT_TRUE(trainer->WaitFor("stopped at step ")) << trainer->output();
  const absl::Time stopped = absl::Now();
  EXPECT_EQ(trainer->Wait(), 128 + SIGINT) << trainer->output();
  EXPECT_LT(absl::Now() - stopped, absl::Seconds(4));
}

// The agent dies with the first rank of the new group, which has the state. So the host is lost.
TEST_F(Migration, ToAHostThatIsLostBeforeTheSecondStep_GoesOnWhereItWas) {
  const std::string died = folder_ / "died";
  const auto trainer = Start(Shell(), {}, Dying("0 state taken over", died, SIGKILL));
  const v1::ScaleRequest end = Move("home", "beta");
  EXPECT_EQ(end.state(), "refused");
  EXPECT_THAT(end.message(), HasSubstr("the run did not go on at beta: "));
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody died";
  EXPECT_EQ(RanksAt("home"), 2u) << trainer->output();
  ExpectBitsOfARunThatStays(trainer.get());
  EXPECT_THAT(trainer->output(), HasSubstr("as before, at the host before"));
}

TEST_F(Migration, OfRanksThatDieAtTheNewHost_StartsThemThereAgain) {
  const std::string died = folder_ / "died";
  const auto trainer = Start(Shell(), {}, Dying("1 state taken over", died));
  const v1::ScaleRequest end = Move("home", "beta");
  EXPECT_EQ(end.state(), "done") << end.message() << trainer->output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody died";
  EXPECT_EQ(RanksAt("beta"), 2u);
  ExpectBitsOfARunThatStays(trainer.get());
}

TEST_F(Migration, OfRanksThatDieWhileTheyHandOver_GoesOnWhereItWas) {
  const std::string died = folder_ / "died";
  const auto trainer = Start(Shell(), {"--restarts", "1"}, Dying("1 shards handed over", died));
  const v1::ScaleRequest end = Move("home", "beta");
  EXPECT_EQ(end.state(), "refused") << trainer->output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody died";
  EXPECT_EQ(RanksAt("home"), 2u);
  ExpectBitsOfARunThatStays(trainer.get());
}

TEST_F(Migration, OfRanksThatDieOnceTheStateIsHandedOver_GoesToTheNewHost) {
  const std::string died = folder_ / "died";
  const auto trainer = Start(Shell(), {}, Dying("0 handover complete", died));
  const v1::ScaleRequest end = Move("home", "beta");
  EXPECT_EQ(end.state(), "done") << end.message() << trainer->output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody died";
  EXPECT_EQ(RanksAt("beta"), 2u);
  ExpectBitsOfARunThatStays(trainer.get());
}

TEST_F(Migration, WithRestarts_StartsRanksAgainWhereTheyAre) {
  const auto trainer = Start(Shell(), {"--restarts", "1"});
  ASSERT_EQ(Move("home", "beta").state(), "done") << trainer->output();
  ASSERT_TRUE(WaitForStep(*trainer, LastStep(log_) + 2));
  pid_t agent = -1;
  for (const pid_t pid : trainer->Children("")) {
    const std::vector<pid_t> ranks = ChildrenOf(pid, "geminid-train: rank 1");
    if (ranks.empty()) continue;
    agent = pid;
    kill(ranks.front(), SIGKILL);
  }
  ASSERT_GT(agent, 0) << trainer->output();
  ASSERT_TRUE(trainer->WaitFor("all ranks are started again (1 of 1)", "goes on after step "))
      << trainer->output();
  EXPECT_EQ(RanksAt("home"), 0u);
  ExpectBitsOfARunThatStays(trainer.get());
}

TEST_F(Migration, AtASignalDuringIt_EndsWithItsStateSavedThere) {
  const std::string died = folder_ / "signalled", save = folder_ / "save";
  const auto trainer =
      Start(Shell(), {"--save", save}, Dying("0 handover complete", died, SIGTERM));
  Ask("home", "beta");
  EXPECT_EQ(trainer->Wait(), 128 + SIGTERM) << trainer->output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody was signalled";
  EXPECT_THAT(trainer->output(), HasSubstr("by SIGTERM"));
  EXPECT_FALSE(std::filesystem::is_empty(save));
}

// --- ended by a person ---------------------------------------------------------------------------

TEST_F(Migration, EndedWhileItsStateTravels_EndsThereTooAndGivesBackWhatArrived) {
  const std::string goes = folder_ / "goes", gone = folder_ / "gone";
  // The connection lets the greeting through, and stops within the state.
  const auto trainer =
      Start(Shell(absl::StrCat("if [ $1 = beta ]; then\n  export GEMINID_SOCKET=", SocketOf("beta"),
                               "\n  (dd bs=1 count=60000 status=none\n   until [ -e ", goes,
                               " ]; do sleep 0.02; done\n   cat) | /bin/sh -c \"$2\"\n  : > ", gone,
                               "\n  exit\nfi\n")),
            {"--host-timeout", "60"});
  const v1::ScaleRequest move = Ask("home", "beta");
  ASSERT_TRUE(trainer->WaitFor("of state to beta")) << trainer->output();
  EXPECT_EQ(End("home", [&] { std::ofstream(goes) << "go"; }).host(), "beta");
  EXPECT_EQ(trainer->Wait(), base::kExitAborted) << trainer->output();
  EXPECT_THAT(trainer->output(),
              HasSubstr("the job was ended on request (geminictl end) while it moved"));
  EXPECT_EQ(AwaitEnd("home", move).message(), "the job was ended on request");
  EXPECT_EQ(RanksAt("home"), 0u);
  EXPECT_EQ(RanksAt("beta"), 0u);
  EXPECT_TRUE(AwaitFile(gone)) << "the agent at beta has the state still";
}

// A rank holds the move at that point.
class EndedMove : public MovedRun, public ::testing::WithParamInterface<const char*> {};

TEST_P(EndedMove, AtThisPoint_EndsAtBothHosts) {
  const std::string held = folder_ / "held", fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  Words program = Dying(GetParam(), held);
  program.insert(program.begin(), "GEMINID_TEST_HOLD=" + fifo);
  const auto trainer = Start(Shell(), {}, program);
  const v1::ScaleRequest move = Ask("home", "beta");
  ASSERT_TRUE(AwaitFile(held)) << trainer->output();
  base::UniqueFd writer;
  End("home", [&] { writer = base::UniqueFd(open(fifo.c_str(), O_RDWR | O_CLOEXEC)); });
  EXPECT_EQ(trainer->Wait(), base::kExitAborted) << trainer->output();
  EXPECT_THAT(trainer->output(), HasSubstr("the job was ended on request"));
  EXPECT_EQ(AwaitEnd("home", move).state(), "refused");
  EXPECT_EQ(RanksAt("home"), 0u);
  EXPECT_EQ(RanksAt("beta"), 0u);
}

INSTANTIATE_TEST_SUITE_P(Migration, EndedMove,
                         ::testing::Values("0 handover begun", "1 shards handed over",
                                           "0 handover complete", "0 state taken over"),
                         [](const auto& test) {
                           std::string name = test.param + 2;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace geminid::trainer
