// How runs end before their last step, and their messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kWide = 200;
constexpr char kForever[] = "1000000";

class Ends : public testing::Test {
 protected:
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--text",  text_,    "--model",  "gpt2-tiny",
                                          "--steps", kForever, "--report", folder_ / "report.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  nlohmann::json Report() const {
    return nlohmann::json::parse(std::ifstream(folder_ / "report.json"), nullptr, false);
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", std::string(5000, 'x'));
};

TEST_F(Ends, AskedToByASignal_FinishesTheStepAndWritesTheReport) {
  for (const char* ranks : {"1", "2"}) {
    for (const auto& [signal, name] :
         {std::pair{SIGINT, "SIGINT"}, std::pair{SIGTERM, "SIGTERM"}}) {
      TrainerProcess trainer(Arguments({"--ranks", ranks}), kWide);
      ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
      trainer.Signal(signal);
      EXPECT_EQ(trainer.Wait(), 128 + signal) << trainer.output();
      const nlohmann::json report = Report();
      const std::string steps = std::to_string(report["steps_done"].get<int>());
      EXPECT_THAT(trainer.output(),
                  HasSubstr("stopped at step " + steps + " of 1000000 by " + name));
      EXPECT_EQ(report["ended_by"], name);
      EXPECT_EQ(report["loss"].size(), report["steps_done"]);
      EXPECT_EQ(report["world_size"], std::stoi(ranks));
      EXPECT_EQ(report["weights_sha256"], "") << "who stops a run may kill it soon";
    }
  }
}

TEST_F(Ends, OfARunWhoseWeightsAreHashed_IsThatOfTheFlag) {
  constexpr size_t kHexDigits = 64;
  const std::vector<std::string> short_run = {"--steps", "2"};
  const auto hash_of = [&](const char* when) {
    std::vector<std::string> words = Arguments(short_run);
    words.insert(words.end(), {"--weights-hash", when});
    EXPECT_EQ(RunTrainer(words).code, 0);
    return Report()["weights_sha256"].get<std::string>();
  };
  EXPECT_EQ(hash_of("end").size(), kHexDigits);
  EXPECT_EQ(hash_of("always"), hash_of("end"));
  EXPECT_EQ(hash_of("never"), "");
  TrainerProcess trainer(Arguments({"--weights-hash", "always"}), kWide);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  trainer.Signal(SIGTERM);
  EXPECT_EQ(trainer.Wait(), 128 + SIGTERM) << trainer.output();
  EXPECT_EQ(Report()["weights_sha256"].get<std::string>().size(), kHexDigits);
}

TEST_F(Ends, AskedToAtTheTerminal_EndsAllRanksOnceAndAlike) {
  TrainerProcess trainer(Arguments({"--ranks", "2"}), kWide);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  trainer.Type("\x03");
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("by SIGINT; the report is "));
  EXPECT_THAT(trainer.output(), testing::Not(HasSubstr("at once by")));
}

TEST_F(Ends, AskedToByASignalForOneRank_EndsAllOfThem) {
  TrainerProcess trainer(Arguments({"--ranks", "2"}), kWide);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  const std::vector<pid_t> ranks = trainer.Children("geminid-train: rank 1");
  ASSERT_EQ(ranks.size(), 1);
  kill(ranks[0], SIGTERM);
  EXPECT_EQ(trainer.Wait(), 128 + SIGTERM) << trainer.output();
  EXPECT_EQ(Report()["ended_by"], "SIGTERM");
}

// True when the trainer's processes use no processor time for a while.
bool WaitsForOthers(const TrainerProcess& trainer) {
  constexpr absl::Duration kStill = absl::Milliseconds(500);
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  absl::Duration used = trainer.Used();
  absl::Time since = absl::Now();
  while (absl::Now() - since < kStill && absl::Now() < give_up) {
    absl::SleepFor(absl::Milliseconds(10));
    if (trainer.Used() == used) continue;
    used = trainer.Used();
    since = absl::Now();
  }
  return absl::Now() < give_up;
}

TEST_F(Ends, AskedToTwice_EndsAtOnceAndLeavesNothing) {
  for (const char* ranks : {"1", "2"}) {
    const base::TemporaryFolder runtime;
    TrainerProcess trainer(Arguments({"--ranks", ranks, "--host-memory", "1GiB"}), kWide,
                           {"XDG_RUNTIME_DIR=" + runtime.path()});
    ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
    ASSERT_EQ(runtime.Entries(), 1);
    // A step that needs a stopped daemon does not end.
    const std::vector<pid_t> daemons = trainer.Children(GEMINID_DAEMON_BINARY);
    ASSERT_EQ(daemons.size(), 1);
    kill(daemons[0], SIGSTOP);
    // The step in flight may end without the daemon; a signal before its end would end the run.
    ASSERT_TRUE(WaitsForOthers(trainer)) << trainer.output();
    trainer.Signal(SIGINT);
    ASSERT_TRUE(trainer.WaitFor("ends at the next micro-batch; once more to end at once"));
    // A signal counts as a second request only some time after the first one.
    const absl::Time began = absl::Now();
    while (absl::Now() - began < absl::Seconds(1)) absl::SleepFor(absl::Milliseconds(10));
    trainer.Signal(SIGINT);
    EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
    kill(daemons[0], SIGCONT);
    EXPECT_THAT(trainer.output(), HasSubstr("ended at once by a second SIGINT"));
    // After a process has ended, its daemon cleans up at any time.
    const absl::Time give_up = absl::Now() + absl::Seconds(30);
    while (runtime.Entries() > 0 && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_EQ(runtime.Entries(), 0);
    EXPECT_TRUE(Report().is_discarded());
  }
}

TEST_F(Ends, OfRanks_AreKnownByName) {
  TrainerProcess trainer(Arguments({"--ranks", "2"}), kWide);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  for (const char* rank : {"0", "1"}) {
    const std::vector<pid_t> named =
        trainer.Children(std::string("geminid-train: rank ") + rank + " --text ");
    ASSERT_EQ(named.size(), 1) << rank;
    EXPECT_EQ(ShortNameOf(named[0]), std::string("geminid-rank ") + rank);
  }
}

// In new measurements another mesh might look better. But the ranks' state in memory is of the
// first mesh.
TEST_F(Ends, WithRestartsInAMeshOfTheirChoice_GoOnInIt) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--restarts", "1", "--parallel", "auto"}),
                         kWide);
  // Then both ranks have committed a step.
  ASSERT_TRUE(trainer.WaitForStep(2)) << trainer.output();
  const std::vector<pid_t> rank = trainer.Children("geminid-train: rank 1 ");
  ASSERT_EQ(rank.size(), 1);
  kill(rank[0], SIGKILL);
  ASSERT_TRUE(trainer.WaitFor("start 2: goes on after step ", "\x1b[Kstep ")) << trainer.output();
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  const std::string& said = trainer.output();
  const std::string words = "parallel auto: ";
  const size_t begin = said.find(words) + words.size();
  const std::string first = said.substr(begin, said.find(" micro-batch", begin) - begin);
  EXPECT_THAT(said, HasSubstr("all ranks are started again (1 of 1)"));
  EXPECT_THAT(said, HasSubstr("parallel auto: as before: " + first));
}

// The position of the state in memory is a position in the old data.
TEST_F(Ends, WithRestartsOnOtherData_SaveWhatTheRanksLeftAndSayBoth) {
  const std::string run = folder_ / "run";
  TrainerProcess trainer(Arguments({"--ranks", "2", "--restarts", "2", "--save", run}), kWide);
  ASSERT_TRUE(trainer.WaitForStep(2)) << trainer.output();
  std::ofstream(text_, std::ios::app) << "more";
  const std::vector<pid_t> rank = trainer.Children("geminid-train: rank 1 ");
  ASSERT_EQ(rank.size(), 1);
  kill(rank[0], SIGKILL);
  EXPECT_EQ(trainer.Wait(), 10) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("--text is 5004 bytes, CRC-32C "));
  EXPECT_THAT(trainer.output(), HasSubstr(", and was 5000 bytes, CRC-32C "));
  EXPECT_THAT(trainer.output(), HasSubstr("go on from " + run + " with --resume"));
  EXPECT_THAT(trainer.output(), testing::Not(HasSubstr("(2 of 2)")));
  std::filesystem::resize_file(text_, 5000);
  std::string last;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    last = std::max(last, entry.path().filename().string());
  }
  ASSERT_THAT(last, StartsWith("step-"));
  const int done = std::stoi(last.substr(std::string("step-").size()));
  EXPECT_GE(done, 1);
  const CommandResult resumed =
      RunTrainer(Arguments({"--save", run, "--resume", "--steps", std::to_string(done + 1)}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Report()["first_step"], done);
}

// The step whose data are missing is abandoned by all ranks before one of them computes.
TEST_F(Ends, WhoseDataCannotBeReadAnyMore_SaveTheStepsSoFar) {
  constexpr uint64_t kShardBytes = 20000;
  const std::string shard = folder_.Write("data.bin", std::string(kShardBytes, '\1'));
  const std::string run = folder_ / "run";
  const auto words = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = Arguments({"--ranks", "2", "--save", run, "--resume"});
    all[0] = "--shards";
    all[1] = shard;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  TrainerProcess trainer(words({"--restarts", "1", "--vocabulary", "65536"}), kWide);
  ASSERT_TRUE(trainer.WaitForStep(2)) << trainer.output();
  std::filesystem::resize_file(shard, kShardBytes / 2);
  EXPECT_EQ(trainer.Wait(), 2) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("since the data of the next one cannot be read; saved"));
  EXPECT_THAT(trainer.output(), HasSubstr("became shorter while it was in use"));
  EXPECT_THAT(trainer.output(), testing::Not(HasSubstr("started again")));
  const nlohmann::json report = Report();
  EXPECT_EQ(report["ended_by"], "data");
  const int done = report["steps_done"];
  EXPECT_GE(done, 2);
  folder_.Write("data.bin", std::string(kShardBytes, '\1'));
  const CommandResult resumed =
      RunTrainer(words({"--vocabulary", "65536", "--steps", std::to_string(done + 1)}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Report()["first_step"], done);
}

TEST_F(Ends, WhenTheLossIsNotFinite_WarnsOnceAndCounts) {
  const CommandResult result =
      RunTrainer(Arguments({"--steps", "12", "--lr", "1000", "--warmup-steps", "10"}));
  EXPECT_EQ(result.code, 0) << result.err;
  const nlohmann::json report = Report();
  const std::string first = report["first_non_finite_step"].dump();
  const std::string count = report["non_finite_losses"].dump();
  EXPECT_GE(report["non_finite_losses"], 2);
  EXPECT_EQ(report["ended_by"], "steps");
  const std::string warning = "the loss of step " + first + " is not finite";
  EXPECT_THAT(result.err, HasSubstr(warning));
  EXPECT_EQ(result.err.find(warning), result.err.rfind("is not finite") - warning.find("is not"));
  EXPECT_THAT(result.err, HasSubstr("not finite " + count));
  EXPECT_THAT(result.err, HasSubstr("the loss of " + count + " of 12 steps was not finite"));
}

TEST_F(Ends, WhenTheLossIsNotFinite_StopOnNanEndsAllRanksWithACodeOfItsOwn) {
  for (const char* ranks : {"1", "2"}) {
    const CommandResult result = RunTrainer(
        Arguments({"--stop-on-nan", "--lr", "1000", "--warmup-steps", "10", "--ranks", ranks}));
    EXPECT_EQ(result.code, 11) << result.err;
    const nlohmann::json report = Report();
    EXPECT_EQ(report["ended_by"], "nan");
    EXPECT_EQ(report["non_finite_losses"], 1);
    EXPECT_EQ(report["first_non_finite_step"], report["steps_done"]);
    EXPECT_THAT(result.err, HasSubstr("by --stop-on-nan"));
  }
}

// The step can be neither completed nor undone, and a restart would meet it again.
TEST_F(Ends, WhenAGradientIsNotFiniteInTheBackwardPass_HaveTheSameCodeAndStartNothing) {
  std::string letters;  // more than one letter: without a loss there is no gradient
  for (size_t i = 0; i < 5000; ++i) letters += static_cast<char>('a' + i * i % 26);
  const std::string text = folder_.Write("letters", letters);
  for (const std::vector<std::string>& ranks : std::vector<std::vector<std::string>>{
           {"--ranks", "1", "--stop-on-nan"}, {"--ranks", "2", "--restarts", "2"}}) {
    std::vector<std::string> words = {"--text",         text,   "--model",     "gpt2-tiny",
                                      "--steps",        "100",  "--lr",        "1000",
                                      "--warmup-steps", "1",    "--optimizer", "sgd",
                                      "--momentum",     "0.99", "--clip-norm", "0"};
    words.insert(words.end(), ranks.begin(), ranks.end());
    const CommandResult result = RunTrainer(words);
    EXPECT_EQ(result.code, 11) << result.err;
    EXPECT_THAT(result.err, HasSubstr("a gradient is not finite"));
    EXPECT_THAT(result.err, HasSubstr("give --update step, where such a step changes nothing"));
    EXPECT_THAT(result.err, testing::Not(HasSubstr("started again")));
  }
}

TEST_F(Ends, WithAFrozenDaemon_CountsTheWaitAsTheDaemons) {
  const absl::Time started = absl::Now();
  TrainerProcess trainer(Arguments({"--host-memory", "1GiB"}), kWide);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  const std::vector<pid_t> daemons = trainer.Children(GEMINID_DAEMON_BINARY);
  ASSERT_EQ(daemons.size(), 1);
  kill(daemons[0], SIGSTOP);
  const absl::Time frozen = absl::Now();
  while (absl::Now() - frozen < absl::Seconds(2)) absl::SleepFor(absl::Milliseconds(10));
  kill(daemons[0], SIGCONT);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  const absl::Duration taken = absl::Now() - started;
  const nlohmann::json report = Report();
  EXPECT_TRUE(report["everything_fits"]);
  EXPECT_GT(report["stall_seconds_by_cause"]["daemon"], 1.5);
  EXPECT_LT(report["stall_seconds_by_cause"]["daemon"], absl::ToDoubleSeconds(taken));
}

// The frames of a line that is rewritten, without the text before and after.
std::vector<std::string> Frames(const std::string& output) {
  constexpr char kErase[] = "\r\x1b[K";
  std::vector<std::string> frames;
  for (size_t at = output.find(kErase); at != std::string::npos;) {
    at += sizeof(kErase) - 1;
    const size_t next = output.find(kErase, at);
    frames.push_back(output.substr(at, std::min(output.find_first_of("\r\n", at), next) - at));
    at = next;
  }
  return frames;
}

TEST_F(Ends, OnATerminalOfAnyWidth_ShowProgressOnOneLine) {
  for (const int columns : {40, 60, 80, 132, 200}) {
    for (const char* ranks : {"1", "2"}) {
      TrainerProcess trainer(Arguments({"--steps", "3", "--ranks", ranks}), columns);
      EXPECT_EQ(trainer.Wait(), 0) << trainer.output();
      const std::vector<std::string> frames = Frames(trainer.output());
      ASSERT_GE(frames.size(), 2) << trainer.output();
      EXPECT_THAT(frames.back(), StartsWith("step 3/3  loss "));
      for (const std::string& frame : frames) {
        EXPECT_LT(frame.size(), columns) << frame;
        EXPECT_GT(frame.size(), std::min(columns, 100) / 2) << "leaves room unused: " << frame;
      }
    }
  }
}

TEST_F(Ends, OfTrainingAsAWhole_SayHowFastItWasAndOnWhichPath) {
  const CommandResult result = RunTrainer(Arguments({"--steps", "3"}));
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json report = Report();
  const double tokens = report["tokens_per_second"], flops = report["flops_per_second"];
  // gpt2-tiny has 2 layers of 12 * 64 * 64 weights, an output layer of 64 * 256, and a context of
  // 64.
  const double per_token = 6.0 * (2 * 12 * 64 * 64 + 64 * 256) + 12.0 * 2 * 64 * 64;
  EXPECT_EQ(report["flops_per_token"], per_token);
  EXPECT_DOUBLE_EQ(flops, per_token * tokens);
  const std::string path = report["dtype_is_native"].get<bool>() ? "bf16 native" : "bf16 emulated";
  EXPECT_THAT(result.err, HasSubstr("FLOP/s " + path));
}

}  // namespace
}  // namespace geminid::trainer
