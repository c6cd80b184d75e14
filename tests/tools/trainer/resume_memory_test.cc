// A resume takes no more memory than the run, by the peaks of the daemon's ledger and of the
// kernel's count for the largest process.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/base/long_tests.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using Words = std::vector<std::string>;

constexpr double kMost = 1.02;  // relative to the peaks of the undisturbed run

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Peaks {
  uint64_t device_bytes = 0;  // in the ledger
  uint64_t host_bytes = 0;
  uint64_t process_bytes = 0;  // of the largest rank, by the kernel
};

// The value of the page's first line that begins with `series`.
uint64_t ValueOf(const std::string& page, const std::string& series) {
  const size_t begin = page.find("\n" + series);
  if (begin == std::string::npos) return 0;
  return static_cast<uint64_t>(std::stod(page.substr(page.find("} ", begin) + 2)));
}

void ExpectNoMore(const Peaks& resumed, const Peaks& undisturbed) {
  // Checks that each was counted, because a peak of nothing would pass.
  ASSERT_GT(undisturbed.device_bytes, 0u);
  ASSERT_GT(undisturbed.host_bytes, 0u);
  ASSERT_GT(resumed.host_bytes, undisturbed.host_bytes / 2);
  EXPECT_LE(resumed.device_bytes, kMost * undisturbed.device_bytes);
  EXPECT_LE(resumed.host_bytes, kMost * undisturbed.host_bytes);
  EXPECT_LE(resumed.process_bytes, kMost * undisturbed.process_bytes);
}

// AdamW has 39 MB of state here. A resume that read all of it at once would double a rank's memory.
class MemoryOfResumes : public ::testing::TestWithParam<Words> {
 protected:
  Words Arguments(const std::string& ranks, const Words& more) const {
    return Words{"--text",     text_,       "--model",  "gpt2-3m",         "--ranks",
                 ranks,        "--batch",   "2",        "--device-memory", "24MiB",
                 "--schedule", "constant",  "--report", report_,           "--progress",
                 "none",       "--threads", "1",        "--socket",        env_.socket()} +
           GetParam() + more;
  }

  // Uses a daemon of its own, whose peaks begin at 0.
  Peaks Train(const std::string& ranks, const Words& more) {
    EXPECT_TRUE(env_.Start().ok());
    const CommandResult run = RunTrainer(Arguments(ranks, more));
    EXPECT_EQ(run.code, 0) << run.err;
    const Peaks peaks = LedgerPeaks(run.peak_resident_bytes);
    env_.Stop();
    return peaks;
  }

  Peaks LedgerPeaks(uint64_t process_bytes) {
    const std::string page = env_.MetricsPage();
    const std::string tier = "geminid_tier_peak_in_use_bytes{tier=";
    return {.device_bytes = ValueOf(page, tier + "\"device\""),
            .host_bytes = ValueOf(page, tier + "\"host\""),
            .process_bytes = process_bytes};
  }

  nlohmann::json Report() const { return nlohmann::json::parse(std::ifstream(report_)); }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    return text;
  }());
  const std::string report_ = folder_ / "report.json";
  geminid::testing::DaemonEnv env_;
};

TEST_P(MemoryOfResumes, OnAnotherNumberOfRanks_IsThatOfTheRun) {
  const std::string of_one = folder_ / "one", of_two = folder_ / "two";
  const Peaks one = Train("1", {"--steps", "2", "--save", of_one});
  const Peaks two = Train("2", {"--steps", "2", "--save", of_two});
  const Words further = {"--steps", "4", "--resume"};
  ExpectNoMore(Train("2", further + Words{"--save", of_one}), two);
  EXPECT_EQ(Report()["first_step"], 2);
  ExpectNoMore(Train("1", further + Words{"--save", of_two}), one);
  EXPECT_EQ(Report()["first_step"], 2);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, MemoryOfResumes, ::testing::ValuesIn([] {
      std::vector<Words> all = {
          {"--optimizer", "adamw"}, {"--optimizer", "sgd"}, {"--optimizer", "came"}};
      if (!LongTests()) return all;
      for (const char* name : {"adam", "lamb", "lars", "adagrad", "lion", "adafactor"}) {
        all.push_back({"--optimizer", name});
      }
      all.push_back({"--state-dtype", "bf16"});
      return all;
    }()));

// The ledger alone: a process that writes files has more of its own memory.
using MemoryOfSaves = MemoryOfResumes;

TEST_P(MemoryOfSaves, OfTwoRanksAndOfTheirResume_IsThatOfARunWithoutCheckpoints) {
  Peaks plain = Train("2", {"--steps", "2"});
  plain.process_bytes = UINT64_MAX;
  const std::string saved = folder_ / "saved";
  ExpectNoMore(Train("2", {"--steps", "2", "--save", saved}), plain);
  ExpectNoMore(Train("2", {"--steps", "4", "--resume", "--save", saved}), plain);
  EXPECT_EQ(Report()["first_step"], 2);
}

INSTANTIATE_TEST_SUITE_P(AdamW, MemoryOfSaves, ::testing::Values(Words{}));

// Loads only a checkpoint's values, with new state.
using MemoryOfLoads = MemoryOfResumes;

TEST_P(MemoryOfLoads, OfAnotherRunsValues_IsThatOfARunThatBegins) {
  const std::string saved = folder_ / "saved";
  const Peaks begun = Train("2", {"--steps", "2", "--save", saved});
  ExpectNoMore(Train("2", {"--steps", "2", "--load", saved + "/step-000000002", "--save",
                           folder_ / "further"}),
               begun);
}

INSTANTIATE_TEST_SUITE_P(AdamW, MemoryOfLoads, ::testing::Values(Words{}));

// Uses only the ledger: the kernel counts a killed process together with its replacement.
using MemoryOfReplacements = MemoryOfResumes;

TEST_P(MemoryOfReplacements, OfARankThatWasKilled_IsThatOfTheRun) {
  const Peaks undisturbed = Train("2", {"--steps", "40"});
  ASSERT_TRUE(env_.Start().ok());
  constexpr int kColumns = 200;
  TrainerProcess trainer(
      Arguments("2", {"--steps", "40", "--restarts", "1", "--progress", "terminal"}), kColumns);
  // The second step needs the gradients of a rank that has committed the first step.
  ASSERT_TRUE(trainer.WaitForStep(2)) << trainer.output();
  const std::vector<pid_t> ranks = trainer.Children("geminid-train: rank 1");
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  ASSERT_EQ(trainer.Wait(), 0) << trainer.output();
  EXPECT_NE(trainer.output().find("start 2: goes on after step"), std::string::npos)
      << trainer.output();
  ExpectNoMore(LedgerPeaks(0), undisturbed);
}

INSTANTIATE_TEST_SUITE_P(AdamW, MemoryOfReplacements, ::testing::Values(Words{}));

}  // namespace
}  // namespace geminid::trainer
