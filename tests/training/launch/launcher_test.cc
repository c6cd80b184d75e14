#include "training/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "tests/base/temporary_folder.h"
#include "training/launch/stop_signals.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

// The result of a launch in which every rank is a shell that runs a script.
struct Outcome {
  int code = -1;
  std::string text;
};
Outcome LaunchScript(int ranks, const std::string& script, int restarts = 0,
                     absl::Duration settle_time = absl::Milliseconds(300),
                     absl::Duration grace_time = absl::Milliseconds(500)) {
  // A background process ignores some of these signals, and a shell cannot trap a signal that was
  // ignored when the shell started.
  for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
  Outcome outcome;
  LaunchOptions options;
  options.ranks = ranks;
  options.restarts = restarts;
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  options.environment = {{"LAUNCHER_TEST", "yes"}};
  options.settle_time = settle_time;
  options.grace_time = grace_time;
  options.write_stderr = [&](const std::string& text) { outcome.text += text; };
  const absl::StatusOr<int> code = Launch(options);
  EXPECT_TRUE(code.ok()) << code.status();
  outcome.code = code.value_or(-1);
  return outcome;
}

// A time limit for ranks that end by themselves: enough even on a busy machine.
constexpr absl::Duration kAmple = absl::Minutes(2);

// Shell code: waits for a file, or for the end of the process whose number is in a file. That
// process exists until the launcher has seen its end.
std::string Await(const std::string& file) {
  return absl::StrCat("until [ -s ", file, " ]; do sleep 0.01; done; ");
}
std::string AwaitEndOf(const std::string& file) {
  return absl::StrCat(Await(file), "while kill -0 $(cat ", file,
                      ") 2>/dev/null; do sleep 0.01; done; ");
}

bool NoChildrenLeft() { return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD; }

TEST(Launcher, OfRanksThatSucceed_ReturnsZeroAndGivesEachItsPlace) {
  const base::TemporaryFolder folder;
  const Outcome outcome =
      LaunchScript(3,
                   "echo $WORLD_SIZE/$LOCAL_WORLD_SIZE/$LOCAL_RANK/$LAUNCHER_TEST/"
                   "$GEMINID_JOB_ID > " +
                       (folder / "$RANK"));
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  EXPECT_EQ(outcome.text, "");
  std::string job;
  for (int rank = 0; rank < 3; ++rank) {
    std::string line;
    std::getline(std::ifstream(folder / std::to_string(rank)), line);
    const std::string expected = "3/3/" + std::to_string(rank) + "/yes/";
    EXPECT_THAT(line, testing::StartsWith(expected));
    if (rank == 0) job = line.substr(expected.size());
    EXPECT_EQ(line.substr(expected.size()), job);
  }
  EXPECT_EQ(job.size(), 16);
  EXPECT_TRUE(NoChildrenLeft());
}

TEST(Launcher, OfARankThatFails_StopsTheOthersAndShowsItsLastWords) {
  const absl::Time began = absl::Now();
  const Outcome outcome =
      LaunchScript(3, "[ $RANK = 1 ] && { echo the disk is on fire >&2; exit 7; }; exec sleep 60");
  EXPECT_EQ(outcome.code, base::kExitResourceExhausted);
  EXPECT_THAT(outcome.text, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(outcome.text, HasSubstr("exited with code 7; the other ranks were stopped"));
  EXPECT_THAT(outcome.text, HasSubstr("Its last output:\n  the disk is on fire\n"));
  EXPECT_LT(absl::Now() - began, absl::Seconds(20));
  EXPECT_TRUE(NoChildrenLeft());
}

// The rank that knows why may end after one that only misses another.
TEST(Launcher, OfAJobThatAUserEnded_StartsNothingHoweverTheRanksEnd) {
  const base::TemporaryFolder folder;
  const std::string file = folder / "pid";
  const Outcome outcome = LaunchScript(
      2,
      absl::StrCat("[ $RANK = 1 ] && { echo $$ > ", file, "; exit ", int{base::kExitUnavailable},
                   "; }; trap 'echo the job was ended on request >&2; exit ",
                   int{base::kExitAborted}, "' TERM; ", AwaitEndOf(file),
                   "while :; do sleep 0.01; done"),
      /*restarts=*/2, /*settle_time=*/absl::Milliseconds(50), /*grace_time=*/kAmple);
  EXPECT_EQ(outcome.code, base::kExitAborted) << outcome.text;
  EXPECT_THAT(outcome.text, Not(HasSubstr("started again")));
}

TEST(Launcher, OfARankThatDiverges_ShowsItsWordsWhereRankZeroMissesIt) {
  const base::TemporaryFolder folder;
  const std::string file = folder / "pid";
  const Outcome outcome = LaunchScript(
      2,
      absl::StrCat("[ $RANK = 1 ] && { echo the gradient of w is not finite >&2; echo $$ > ", file,
                   "; exit ", int{base::kExitDiverged}, "; }; ", AwaitEndOf(file), "exit ",
                   int{base::kExitUnavailable}),
      /*restarts=*/0, kAmple);
  EXPECT_EQ(outcome.code, base::kExitDiverged);
  EXPECT_THAT(outcome.text, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(outcome.text, HasSubstr(":\n  the gradient of w is not finite\n"));
}

TEST(Launcher, OfARankThatIsKilled_NamesTheSignal) {
  const base::TemporaryFolder folder;
  const std::string file = folder / "pid";
  const Outcome outcome =
      LaunchScript(2,
                   absl::StrCat("[ $RANK = 1 ] && { echo $$ > ", file, "; kill -9 $$; }; ",
                                AwaitEndOf(file), "exit ", int{base::kExitUnavailable}),
                   /*restarts=*/0, kAmple);
  EXPECT_EQ(outcome.code, base::kExitFailed);
  EXPECT_THAT(outcome.text, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.text, HasSubstr("was killed by signal 9 (Killed)"));
}

// In the first start, rank 1 is killed while rank 0 waits for it.
const char kDiesOnce[] =
    "[ $GEMINID_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && kill -9 $$; exec sleep 60";

TEST(Launcher, WithRestarts_StartsAllRanksAgainAfterOneWasKilled) {
  const Outcome outcome = LaunchScript(2, kDiesOnce, /*restarts=*/2);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(outcome.text, HasSubstr("was killed by signal 9 (Killed); all ranks are started "
                                      "again (1 of 2), to go on from what they left in memory"));
  EXPECT_TRUE(NoChildrenLeft());
}

TEST(Launcher, WithRestarts_TellsTheRanksWhichStartItIsAndKeepsTheirJob) {
  const base::TemporaryFolder folder;
  const std::string file = folder / "$RANK-$GEMINID_RESTART_COUNT";
  // Rank 0 is stopped when rank 1 is dead, so rank 1 first waits for rank 0's file.
  const Outcome outcome = LaunchScript(
      2,
      absl::StrCat("echo $GEMINID_MAX_RESTARTS/$GEMINID_JOB_ID > ", file, "; [ $RANK = 1 ] && { ",
                   Await(folder / "0-$GEMINID_RESTART_COUNT"), "}; ", kDiesOnce),
      1);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  std::set<std::string> jobs;
  for (const char* start : {"0-0", "1-0", "0-1", "1-1"}) {
    std::string line;
    std::getline(std::ifstream(folder / start), line);
    EXPECT_THAT(line, testing::StartsWith("1/")) << start;
    jobs.insert(line);
  }
  EXPECT_EQ(jobs.size(), 1u);
}

TEST(Launcher, WithRestarts_HandsOnWhatAStartLeft) {
  const base::TemporaryFolder folder;
  const Outcome outcome = LaunchScript(2,
                                       "memory=/proc/self/fd/$GEMINID_RUN_MEMORY_FD\n"
                                       "if [ $GEMINID_RESTART_COUNT = 0 ]; then\n"
                                       "  [ $RANK = 1 ] && exec sleep 60\n"
                                       "  printf data=2 1<>$memory; kill -9 $$\n"
                                       "fi\n"
                                       "head -c 6 $memory > " +
                                           (folder / "$RANK"),
                                       /*restarts=*/1);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  for (const char* rank : {"0", "1"}) {
    std::string line;
    std::getline(std::ifstream(folder / rank), line);
    EXPECT_EQ(line, "data=2");
  }
}

// Shell code: the first start's rank leaves state for `ranks` in the format of HandoverMemory.
// Later starts have $GEMINID_RESCALES.
std::string HandOverFrom1To(int ranks) {
  const auto word = [](int low, int high) {  // of two numbers below 64
    return absl::StrFormat("\\%03o\\0\\0\\0\\%03o\\0\\0\\0", low, high);
  };
  std::string record;
  for (const int number : {/*complete*/ 1, /*untold*/ 0, /*last*/ 1, /*request*/ 0, /*step*/ 12,
                           /*bytes*/ 0, /*began*/ 0}) {
    record += word(number, 0);
  }
  record += word(/*ranks before*/ 1, ranks);
  return absl::StrCat("if [ -z \"$GEMINID_RESCALES\" ]; then printf '", record,
                      "' 1<>/proc/self/fd/$GEMINID_HANDOVER_FD; exit 0; fi\n");
}

Outcome LaunchThatHandsOver(
    const std::string& script, int restarts = 0,
    std::function<void(const std::string& job_id, int ranks)> at_end = nullptr, int ranks = 1) {
  for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
  Outcome outcome;
  LaunchOptions options;
  options.hands_over = true;
  options.ranks = ranks;
  options.restarts = restarts;
  options.at_end = std::move(at_end);
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  options.write_stderr = [&](const std::string& text) { outcome.text += text; };
  const absl::StatusOr<int> code = Launch(options);
  EXPECT_TRUE(code.ok()) << code.status();
  outcome.code = code.value_or(-1);
  return outcome;
}

// Only the launcher's memory holds the state.
TEST(Launcher, OfNewRanksForWhichTheSystemHasNoRoom_GoesBackToTheOldNumber) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  constexpr rlim_t kForAFew = 30;  // descriptors; three ranks take about nine
  const rlimit tight = {static_cast<rlim_t>(next) + kForAFew, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  const Outcome outcome =
      LaunchThatHandsOver(HandOverFrom1To(40) + "[ $WORLD_SIZE = 40 ] && exec sleep 60; exit 0");
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("40 ranks will go on from it"));
  EXPECT_THAT(outcome.text, HasSubstr("cannot make a pipe"));
  EXPECT_THAT(outcome.text, HasSubstr("the run goes on with 1 rank as before"));
  EXPECT_TRUE(NoChildrenLeft());
}

TEST(Launcher, OfNewRanksThatAreNotReadyForASignal_KeepsThemAlive) {
  const Outcome outcome = LaunchThatHandsOver(HandOverFrom1To(1) + "kill -TERM $$; exit 0");
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("will go on from it"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("killed")));
}

// With the end of a job, what the job left on disk can be deleted.
TEST(Launcher, OfRanksThatHandOver_TellsTheEndOfEachJob) {
  std::map<std::string, int> ended;
  const Outcome outcome =
      LaunchThatHandsOver(HandOverFrom1To(2) + "exit 0", 0,
                          [&](const std::string& job_id, int ranks) { ended[job_id] = ranks; });
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  std::vector<int> ranks;
  for (const auto& [job, of] : ended) ranks.push_back(of);
  EXPECT_THAT(ranks, testing::UnorderedElementsAre(1, 2));
}

// The first rank has handed over and ended. The second one hangs, and does not hear SIGTERM.
TEST(Launcher, OfARankThatHangsAfterTheHandover_KillsItAndStartsTheNextRanks) {
  const Outcome outcome = LaunchThatHandsOver(
      "if [ -z \"$GEMINID_RESCALES\" ] && [ $RANK = 1 ]; then trap '' TERM; exec sleep 600; fi\n" +
          HandOverFrom1To(3) + "exit 0",
      /*restarts=*/0, /*at_end=*/nullptr, /*ranks=*/2);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("3 ranks will go on from it"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("killed")));
  EXPECT_TRUE(NoChildrenLeft());
}

// No ranks follow those that hand over, or those that continue from the state.
TEST(Launcher, OfAJobThatIsEndedOnRequestInAChange_StartsNoOtherRanks) {
  const std::string ended = "echo 'the job was ended on request' >&2; exit 1";
  const Outcome now = LaunchThatHandsOver(HandOverFrom1To(2) + ended);
  EXPECT_EQ(now.code, base::kExitFailed) << now.text;
  EXPECT_THAT(now.text, HasSubstr("2 ranks will go on from it"));
  EXPECT_THAT(now.text, Not(HasSubstr("started again")));
  EXPECT_THAT(now.text, Not(HasSubstr("as before")));
  std::string script = HandOverFrom1To(2);
  script.replace(script.find("exit 0"), std::strlen("exit 0"), ended);
  const Outcome before = LaunchThatHandsOver(script + "exit 0");
  EXPECT_EQ(before.code, base::kExitFailed) << before.text;
  EXPECT_THAT(before.text, Not(HasSubstr("will go on from it")));
}

TEST(Launcher, OfRanksThatDieInAHandover_GivesItsMemoryBack) {
  const base::TemporaryFolder folder;
  const std::string file = folder / "bytes";
  const std::string memory = "/proc/self/fd/$GEMINID_HANDOVER_FD";
  const Outcome outcome = LaunchThatHandsOver(
      absl::StrCat("if [ $GEMINID_RESTART_COUNT = 0 ]; then truncate -s 1M ", memory,
                   "; kill -9 $$; fi; stat -L -c %s ", memory, " > ", file),
      /*restarts=*/1);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  std::string bytes;
  std::getline(std::ifstream(file), bytes);
  EXPECT_EQ(bytes, "4096");
}

TEST(Launcher, WithRestarts_EndsWhenRanksDieMoreOften) {
  const Outcome outcome = LaunchScript(2, "[ $RANK = 1 ] && kill -9 $$; exec sleep 60", 1);
  EXPECT_EQ(outcome.code, base::kExitFailed);
  EXPECT_THAT(outcome.text, HasSubstr("(1 of 1)"));
  EXPECT_THAT(outcome.text, HasSubstr("the other ranks were stopped"));
}

TEST(Launcher, WithRestarts_DoesNotRepeatWhatWouldHappenAgain) {
  for (const int code : {int{base::kExitUsage}, int{base::kExitResourceExhausted},
                         int{base::kExitPermission}, int{base::kExitDiverged}}) {
    const Outcome outcome = LaunchScript(2, "exit " + std::to_string(code), 3);
    EXPECT_EQ(outcome.code, code);
    EXPECT_THAT(outcome.text, Not(HasSubstr("started again")));
  }
}

// Only the rank whose shard has the gradient notices the divergence.
TEST(Launcher, WithRestarts_OfARankThatDivergesAndStopsTheOthers_ReturnsItsCode) {
  const Outcome outcome =
      LaunchScript(2,
                   absl::StrCat("[ $RANK = 0 ] && exit ", int{base::kExitDiverged}, "; exit ",
                                int{base::kExitAborted}),
                   /*restarts=*/2, /*settle_time=*/kAmple);
  EXPECT_EQ(outcome.code, base::kExitDiverged) << outcome.text;
  EXPECT_THAT(outcome.text, Not(HasSubstr("started again")));
}

TEST(Launcher, WithRestarts_OfARankKilledWhenTheRunWasDone_ReturnsZero) {
  const base::TemporaryFolder folder;
  const std::string file = folder / "pid";
  const Outcome outcome =
      LaunchScript(2,
                   absl::StrCat("[ $RANK = 0 ] && { echo $$ > ", file, "; exit 0; }; ",
                                AwaitEndOf(file), "kill -9 $$"),
                   3);
  EXPECT_EQ(outcome.code, base::kExitOk);
  EXPECT_THAT(outcome.text, HasSubstr("after the run was done"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("started again")));
}

const char kSaysDone[] = "printf d > /proc/self/fd/$GEMINID_DONE_FD; ";

TEST(Launcher, WithRestarts_OfRanksThatSaidDoneAndWereAllKilled_ReturnsZero) {
  const Outcome outcome = LaunchScript(2, absl::StrCat(kSaysDone, "kill -9 $$"), 3);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("was killed by signal 9 (Killed) after the run was done"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("started again")));
  EXPECT_TRUE(NoChildrenLeft());
}

// The ranks agree before one says done, so one rank speaks for all.
TEST(Launcher, WithRestarts_OfRanksOfWhichOneSaidDone_ReturnsZero) {
  const base::TemporaryFolder folder;
  const std::string file = folder / "done";
  const Outcome outcome = LaunchScript(2,
                                       absl::StrCat("[ $RANK = 1 ] && { ", kSaysDone, "echo > ",
                                                    file, "; }; ", Await(file), "kill -9 $$"),
                                       3);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.text;
  EXPECT_THAT(outcome.text, Not(HasSubstr("started again")));
}

TEST(Launcher, WithoutRestarts_OfARankThatSaidDoneAndWasKilled_Fails) {
  EXPECT_EQ(LaunchScript(1, absl::StrCat(kSaysDone, "kill -9 $$")).code, base::kExitFailed);
}

TEST(Launcher, WithRestarts_GivenASignal_EndsTheRun) {
  const Outcome outcome =
      LaunchScript(2, "[ $RANK = 0 ] && kill -TERM $PPID; while :; do sleep 0.05; done", 3);
  EXPECT_EQ(outcome.code, base::kExitSignalBase + SIGTERM) << outcome.text;
  EXPECT_THAT(outcome.text, Not(HasSubstr("started again")));
}

// This holds even if the other rank takes longer to end than other ranks may.
TEST(Launcher, OfARankStoppedByAnother_WaitsForTheOtherAndBlamesIt) {
  for (const int code : {5, int{base::kExitUnavailable}}) {
    const base::TemporaryFolder folder;
    const std::string file = folder / "pid";
    const Outcome outcome = LaunchScript(
        2,
        absl::StrCat("[ $RANK = 0 ] && { echo $$ > ", file, "; exit ", int{base::kExitAborted},
                     "; }; ", AwaitEndOf(file), "echo it was me >&2; exit ", code),
        /*restarts=*/0, /*settle_time=*/absl::ZeroDuration(), /*grace_time=*/kAmple);
    EXPECT_EQ(outcome.code, code) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("rank 1"));
    EXPECT_THAT(outcome.text, HasSubstr("it was me"));
  }
}

TEST(Launcher, OfRanksThatIgnoreSigterm_KillsThem) {
  const Outcome outcome =
      LaunchScript(2, "[ $RANK = 0 ] && exit 1; trap '' TERM; while :; do sleep 0.05; done");
  EXPECT_EQ(outcome.code, base::kExitFailed);
  EXPECT_TRUE(NoChildrenLeft());
}

TEST(Launcher, OfRankZerosWords_PassesThemOnAsTheyAre) {
  const Outcome outcome = LaunchScript(2, "printf '\\rstep %s' $RANK >&2");
  EXPECT_EQ(outcome.code, base::kExitOk);
  EXPECT_EQ(outcome.text, "\rstep 0");
}

TEST(Launcher, GivenASignal_PassesItOnAndReturnsItsCode) {
  // Rank 0 signals its parent, which is this process, once both ranks have set their traps.
  const base::TemporaryFolder folder;
  const std::string ready = folder / "ready";
  const Outcome outcome = LaunchScript(
      2, "trap 'exit 0' TERM; if [ $RANK = 1 ]; then : > " + ready + "; else while [ ! -e " +
             ready + " ]; do sleep 0.01; done; kill -TERM $PPID; fi; while :; do sleep 0.05; done");
  // The traps exit with 0, so the launch succeeds.
  EXPECT_EQ(outcome.code, base::kExitOk);
  const Outcome untrapped =
      LaunchScript(2, "[ $RANK = 0 ] && kill -TERM $PPID; while :; do sleep 0.05; done");
  EXPECT_EQ(untrapped.code, base::kExitSignalBase + SIGTERM);
  EXPECT_THAT(untrapped.text, Not(HasSubstr("rank")));
  EXPECT_TRUE(NoChildrenLeft());
}

TEST(Launcher, OfRanksThatAgreeOnAnEnd_ReturnsItsCodeWithoutBlame) {
  for (const int code : {int{base::kExitDiverged}, base::kExitSignalBase + SIGTERM}) {
    const Outcome outcome = LaunchScript(2, "exit " + std::to_string(code));
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.text, "");
  }
}

TEST(Launcher, GivenASignalThatRanksHandleSlowly_WaitsForThemWithoutALimit) {
  // The traps take longer than both times after which a failed job is killed.
  const std::string handle =
      "trap 'sleep 1; exit " + std::to_string(base::kExitSignalBase + SIGINT) + "' INT; ";
  const Outcome outcome =
      LaunchScript(2, handle + "[ $RANK = 0 ] && kill -INT $PPID; while :; do sleep 0.05; done");
  EXPECT_EQ(outcome.code, base::kExitSignalBase + SIGINT) << outcome.text;
}

TEST(Launcher, OfARankThatFailsAfterASignal_BlamesIt) {
  const Outcome outcome =
      LaunchScript(2,
                   "trap 'echo no disk >&2; exit 7' TERM; [ $RANK = 0 ] && kill -TERM $PPID; "
                   "while :; do sleep 0.05; done");
  EXPECT_EQ(outcome.code, base::kExitResourceExhausted);
  EXPECT_THAT(outcome.text, HasSubstr("exited with code 7"));
}

TEST(Launcher, OfRanks_NamesEachOne) {
  const base::TemporaryFolder folder;
  LaunchScript(2, "tr '\\0' ' ' < /proc/$$/cmdline > " + (folder / "$RANK"));
  for (const char* rank : {"0", "1"}) {
    std::string line;
    std::getline(std::ifstream(folder / rank), line);
    EXPECT_THAT(line, testing::StartsWith(std::string("geminid-train: rank ") + rank + " -c "));
  }
}

TEST(ShortRankName, OfAnyRank_FitsTheKernelsFifteenCharacters) {
  std::set<std::string> names;
  for (int rank = 0; rank < 1024; ++rank) {
    EXPECT_LE(ShortRankName(rank).size(), 15);
    names.insert(ShortRankName(rank));
  }
  EXPECT_EQ(names.size(), 1024);
}

TEST(Launcher, ThatIsKilled_TakesItsRanksWithIt) {
  const base::TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    // Each rank keeps the fifo open for writing until it ends.
    LaunchScript(2, "exec 3> " + (folder / "fifo") + "; echo up >&3; exec sleep 600");
    _exit(0);
  }
  std::ifstream fifo(folder / "fifo");
  std::string line;
  for (int rank = 0; rank < 2; ++rank) std::getline(fifo, line);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  EXPECT_FALSE(std::getline(fifo, line));  // the end of the fifo: no writer is left
}

TEST(WithoutOptions, RemovesBothFormsAndTheirValues) {
  EXPECT_THAT(WithoutOptions({"--a", "1", "--b=2", "--c", "--b", "3", "--bb", "4"}, {"--b", "--c"}),
              testing::ElementsAre("--a", "1", "3", "--bb", "4"));
  EXPECT_THAT(WithoutOptions({"--a", "1", "--b"}, {"--b"}), testing::ElementsAre("--a", "1"));
}

}  // namespace
}  // namespace geminid::trainer
