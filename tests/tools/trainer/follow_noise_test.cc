// Runs whose number of micro-batches follows the gradient noise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/rank_threads.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string SomeText(int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>('a' + i * i % 26 + i % 3));
  return text;
}

class FollowNoise : public testing::Test {
 public:
  static void SetUpTestSuite() { ranks_ = std::make_unique<RankThreads>(); }
  static void TearDownTestSuite() { ranks_.reset(); }

 protected:
  Words Arguments(const Words& more) const {
    return Words{"--text",    text_,  "--model",  "gpt2-tiny", "--context",      "32",
                 "--lr",      "1e-3", "--dtype",  "fp32",      "--warmup-steps", "20",
                 "--threads", "1",    "--report", report_,     "--sampling",     "shuffle"} +
           more;
  }
  nlohmann::json Run(const Words& more) const {
    const absl::Status trained = ranks_->Train(Arguments(more));
    EXPECT_TRUE(trained.ok()) << testing::PrintToString(more) << trained;
    return trained.ok() ? nlohmann::json::parse(std::ifstream(report_)) : nlohmann::json();
  }
  nlohmann::json Report() const { return nlohmann::json::parse(std::ifstream(report_)); }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", SomeText(32 * 300));
  const std::string report_ = folder_ / "report.json";
  const std::string save_ = folder_ / "run";
  inline static std::unique_ptr<RankThreads> ranks_;
};

// Updates are so expensive that the number grows at each review that is sure of the noise.
const Words kGrows = {"--batch",       "2",   "--ranks", "2",  "--accumulate", "auto:1:4",
                      "--update-cost", "1e6", "--steps", "100"};

std::vector<uint64_t> StepSizes(const nlohmann::json& report) {
  return report["batch_following"]["step_micro_batches"].get<std::vector<uint64_t>>();
}

TEST_F(FollowNoise, InARun_TakesTheStepsThatTheChangesSay) {
  const nlohmann::json report = Run(kGrows + Words{"--log", folder_ / "log"});
  const nlohmann::json& following = report["batch_following"];
  const std::vector<uint64_t> sizes = StepSizes(report);
  ASSERT_EQ(sizes.size(), report["loss"].size());
  ASSERT_FALSE(following["changes"].empty());
  uint64_t all = 0, now = 1;
  size_t changes = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(sizes[i], std::min(now, 100 - all)) << i;
    all += sizes[i];
    if (changes == following["changes"].size()) continue;
    const nlohmann::json& change = following["changes"][changes];
    if (change["step"] != i + 1) continue;
    EXPECT_EQ((i + 1) % 16, 0u);
    EXPECT_EQ(change["from"], now);
    now = change["to"];
    EXPECT_LE(now, 2 * change["from"].get<uint64_t>());
    ++changes;
  }
  EXPECT_EQ(changes, following["changes"].size());
  EXPECT_EQ(all, 100u) << "as many sequences as 100 steps of one micro-batch";
  EXPECT_EQ(following["sequences_done"], 200);
  EXPECT_EQ(report["steps_done"], sizes.size());
  EXPECT_EQ(report["ended_by"], "steps");
}

// The line before larger steps gives the reason. The next line's rate is that of the new size.
TEST_F(FollowNoise, InItsLog_SaysWhenAndWhyAndAtWhichRate) {
  const std::string log = folder_ / "log";
  const nlohmann::json report = Run(kGrows + Words{"--log", log});
  const std::vector<uint64_t> sizes = StepSizes(report);
  std::ifstream lines(log);
  uint64_t all = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const nlohmann::json step = nlohmann::json::parse(line);
    all += sizes[i];
    EXPECT_EQ(step["micro_batches"], sizes[i]);
    EXPECT_EQ(step["tokens"], all * 2 * 32);
    const bool changes = i + 1 < sizes.size() && sizes[i + 1] > sizes[i];
    EXPECT_EQ(step.contains("batch_change"), changes) << i;
    const std::string why = step.value("batch_change", "");
    EXPECT_EQ(why.find("gradient noise scale") != std::string::npos, changes) << why;
    const double scheduled = 1e-3 * std::min(1.0, static_cast<double>(all) / 20);
    EXPECT_NEAR(step["learning_rate"].get<double>(),
                scheduled * std::sqrt(static_cast<double>(sizes[i])), 1e-12)
        << i;
  }
}

// With a rate of 0 weights stay, so a step's loss is the mean of its sequences' losses.
TEST_F(FollowNoise, InARun_TrainsOnTheSequencesInTheSameOrder) {
  const nlohmann::json single =
      Run({"--batch", "2", "--ranks", "2", "--steps", "100", "--lr", "0"});
  const nlohmann::json report = Run(kGrows + Words{"--lr", "0"});
  const std::vector<uint64_t> sizes = StepSizes(report);
  EXPECT_GT(sizes[20], 1u) << "otherwise this run shows nothing";
  size_t next = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    double sum = 0;
    for (uint64_t j = 0; j < sizes[i]; ++j) sum += single["loss"][next++].get<double>();
    EXPECT_NEAR(report["loss"][i].get<double>(), sum / static_cast<double>(sizes[i]), 1e-5) << i;
  }
  EXPECT_EQ(next, 100u);
}

TEST_F(FollowNoise, ThatNeverGrows_IsTheRunOfTheFewest) {
  const Words cheap = {"--batch", "2", "--ranks", "2", "--steps", "40"};
  const nlohmann::json fixed = Run(cheap + Words{"--accumulate", "2"});
  const nlohmann::json report =
      Run(cheap + Words{"--accumulate", "auto:2:8", "--update-cost", "0.001"});
  EXPECT_EQ(report["loss_hex"], fixed["loss_hex"]);
  EXPECT_EQ(report["weights_sha256"], fixed["weights_sha256"]);
  EXPECT_EQ(report["steps"], fixed["steps"]);
  EXPECT_EQ(report["accumulate"], 2);
}

TEST_F(FollowNoise, InEpochs_SeesEachSequenceAsOften) {
  const nlohmann::json report = Run({"--batch", "4", "--ranks", "2", "--accumulate", "auto:1:4",
                                     "--update-cost", "1e6", "--epochs", "2"});
  EXPECT_EQ(report["epochs_done"], 600.0 / report["samples_per_epoch"].get<double>())
      << "as always: the last step is filled";
  EXPECT_EQ(report["steps"], 150);
  EXPECT_LT(report["steps_done"], 150);
}

// The checkpoints are between and at reviews; the first precedes the known cost of an update.
TEST_F(FollowNoise, ThatIsResumedFromAnyCheckpoint_IsTheSameRunToTheBit) {
  for (const Words& run :
       {kGrows + Words{"--optimizer", "sgd"},
        Words{"--batch", "2", "--accumulate", "auto:2:8", "--ranks", "2", "--steps", "50",
              "--update-cost", "1e4", "--schedule", "cosine"}}) {
    const std::string all = folder_ / ("all" + run.back());
    const nlohmann::json straight =
        Run(run + Words{"--save", all, "--save-every", "7", "--keep", "20"});
    const std::vector<uint64_t> sizes = StepSizes(straight);
    EXPECT_GT(sizes.back() + sizes[sizes.size() - 2], sizes[0] * 2);
    int resumed = 0;
    for (uint64_t step = 7; step < sizes.size(); step += 14, ++resumed) {
      const std::string name = absl::StrFormat("step-%09d", step);
      const std::string from = folder_ / absl::StrCat(name, run.back());
      std::filesystem::create_directory(from);
      std::filesystem::copy(all + "/" + name, from + "/" + name,
                            std::filesystem::copy_options::recursive);
      const nlohmann::json rest = Run({"--save", from, "--resume", "--ranks", "2"});
      EXPECT_EQ(rest["first_step"], step);
      EXPECT_EQ(rest["weights_sha256"], straight["weights_sha256"]) << step;
      EXPECT_EQ(StepSizes(rest),
                std::vector<uint64_t>(sizes.begin() + static_cast<ptrdiff_t>(step), sizes.end()));
    }
    EXPECT_GE(resumed, 2);
  }
}

// The measured cost is part of the run.
TEST_F(FollowNoise, WhoseUpdateCostWasMeasured_IsResumedToTheBit) {
  const std::string all = folder_ / "all", from = folder_ / "from";
  const nlohmann::json straight =
      Run({"--batch", "2", "--ranks", "2", "--accumulate", "auto:1:8", "--steps", "100", "--save",
           all, "--save-every", "20", "--keep", "9"});
  EXPECT_GT(straight["batch_following"]["update_cost"], 0);
  std::filesystem::create_directory(from);
  std::filesystem::copy(all + "/step-000000020", from + "/step-000000020",
                        std::filesystem::copy_options::recursive);
  const nlohmann::json rest = Run({"--save", from, "--resume", "--ranks", "2"});
  EXPECT_EQ(rest["batch_following"]["update_cost"], straight["batch_following"]["update_cost"]);
  EXPECT_EQ(rest["weights_sha256"], straight["weights_sha256"]);
}

TEST_F(FollowNoise, ThatIsResumedWithAnotherSmallestStepOrFixed_IsRefused) {
  Run(kGrows + Words{"--save", save_});
  const Words again = {"--save", save_, "--resume"};
  EXPECT_THAT(
      std::string(ranks_->Train(Arguments(again + Words{"--accumulate", "auto:2:4"})).message()),
      HasSubstr("(--batch times --accumulate) was 2 and is 4"));
  EXPECT_THAT(
      std::string(
          ranks_->Train(Arguments(again + Words{"--accumulate", "1", "--steps", "200"})).message()),
      HasSubstr("its place in the text is not this run's"));
}

TEST_F(FollowNoise, InAMeshThatDoesNotMeasure_IsRefusedOnce) {
  const CommandResult run = RunTrainer(
      Arguments({"--batch", "2", "--accumulate", "auto:2:4", "--parallel", "pipeline=2"}));
  EXPECT_EQ(run.code, 2);
  const std::string words = "--accumulate auto:2:4: the gradient noise is measured where";
  EXPECT_THAT(run.err, HasSubstr(words));
  EXPECT_EQ(run.err.find(words), run.err.rfind(words));
  const CommandResult one = RunTrainer(Arguments({"--batch", "2", "--accumulate", "auto:1:4"}));
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("give auto:2:4"));
}

// The rank is killed after the first change. The state in memory includes that of the decision.
TEST_F(FollowNoise, WhoseRankIsKilled_GoesOnToTheSameBits) {
  constexpr int kColumns = 200;
  const Words run = {"--batch",       "2",   "--ranks", "2",  "--accumulate", "auto:1:4",
                     "--update-cost", "1e6", "--steps", "600"};
  const nlohmann::json undisturbed = Run(run);
  TrainerProcess trainer(Arguments(run + Words{"--restarts", "1"}), kColumns);
  ASSERT_TRUE(trainer.WaitForStep(40)) << trainer.output();
  const std::vector<pid_t> ranks = trainer.Children("geminid-train: rank 1");
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  ASSERT_EQ(trainer.Wait(), 0) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("start 2: goes on after step"));
  EXPECT_THAT(trainer.output(), HasSubstr("sequences instead of"));
  EXPECT_EQ(Report()["weights_sha256"], undisturbed["weights_sha256"]);
}

TEST_F(FollowNoise, ThatASignalEnds_IsResumedToTheSameBits) {
  constexpr int kColumns = 200;
  const Words run = {"--batch",       "2",   "--accumulate", "auto:2:8",
                     "--update-cost", "1e6", "--steps",      "300"};
  const nlohmann::json undisturbed = Run(run);
  TrainerProcess trainer(Arguments(run + Words{"--save", save_}), kColumns);
  ASSERT_TRUE(trainer.WaitForStep(40)) << trainer.output();
  trainer.Signal(SIGTERM);
  ASSERT_EQ(trainer.Wait(), 128 + SIGTERM) << trainer.output();
  const nlohmann::json rest = Run({"--save", save_, "--resume"});
  EXPECT_GE(rest["first_step"], 40);
  EXPECT_EQ(rest["weights_sha256"], undisturbed["weights_sha256"]);
}

}  // namespace
}  // namespace geminid::trainer
