// Runs in epochs use each sequence once in each epoch, on any rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/rank_threads.h"

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
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
  return text;
}

class Epochs : public testing::Test {
 public:
  static void SetUpTestSuite() { ranks_ = std::make_unique<RankThreads>(); }
  static void TearDownTestSuite() { ranks_.reset(); }

 protected:
  // The text has 10 sequences of 32 bytes and a rest.
  Words Arguments(const Words& more) const {
    return Words{"--text",    text_,  "--model",  "gpt2-tiny", "--context",      "32",
                 "--lr",      "3e-3", "--dtype",  "fp32",      "--warmup-steps", "2",
                 "--threads", "1",    "--report", report_} +
           more;
  }
  nlohmann::json Run(const Words& more) const {
    const absl::Status trained = ranks_->Train(Arguments(more));
    EXPECT_TRUE(trained.ok()) << testing::PrintToString(more) << trained;
    return trained.ok() ? nlohmann::json::parse(std::ifstream(report_)) : nlohmann::json();
  }
  absl::Status Refused(const Words& more) const { return ranks_->Train(Arguments(more)); }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", SomeText(32 * 10 + 20));
  const std::string report_ = folder_ / "report.json";
  const std::string save_ = folder_ / "run";
  inline static std::unique_ptr<RankThreads> ranks_;
};

TEST_F(Epochs, OfARun_AreAsManyStepsAsTheyTakeAndAreReported) {
  const nlohmann::json report = Run({"--epochs", "2", "--batch", "4"});
  EXPECT_EQ(report["steps"], 5);
  EXPECT_EQ(report["loss"].size(), 5u);
  EXPECT_EQ(report["sampling"], "shuffle");
  EXPECT_EQ(report["samples_per_epoch"], 10);
  EXPECT_EQ(report["epochs_done"], 2.0);
  EXPECT_TRUE(report["notes"].empty());
  const nlohmann::json steps = Run({"--steps", "5", "--sampling", "shuffle", "--batch", "4"});
  EXPECT_EQ(steps["loss_hex"], report["loss_hex"]);
  const nlohmann::json other = Run({"--steps", "5", "--batch", "4"});
  EXPECT_NE(other["loss_hex"], report["loss_hex"]);
  EXPECT_TRUE(other["samples_per_epoch"].is_null());
  EXPECT_EQ(other["sampling"], "replacement");
}

// If one step is a whole epoch, its mean loss before any update does not depend on the order.
TEST_F(Epochs, InOneStep_HaveTheLossOfAllSequencesInWhateverOrder) {
  const Words whole = {"--epochs", "1", "--batch", "10"};
  const double in_order = Run(whole + Words{"--sampling", "sequential"})["loss"][0];
  for (const char* seed : {"1", "2", "3"}) {
    const nlohmann::json sequential =
        Run(whole + Words{"--sampling", "sequential", "--seed", seed});
    const nlohmann::json shuffled = Run(whole + Words{"--seed", seed});
    EXPECT_NEAR(shuffled["loss"][0].get<double>(), sequential["loss"][0].get<double>(), 1e-5);
    if (seed == std::string("1")) {
      EXPECT_EQ(sequential["loss"][0], in_order);
    }
  }
}

TEST_F(Epochs, OnAnyRanksAndMicroBatches_AreTheSameRun) {
  const nlohmann::json one = Run({"--epochs", "2", "--batch", "4"});
  for (const Words& shares : std::vector<Words>{
           {"--batch", "4", "--ranks", "2"},
           {"--batch", "4", "--ranks", "4"},
           {"--batch", "2", "--accumulate", "2"},
           {"--batch", "2", "--accumulate", "2", "--ranks", "2", "--parallel", "pipeline=2"}}) {
    const nlohmann::json other = Run(Words{"--epochs", "2"} + shares);
    ASSERT_EQ(other["loss"].size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      const double loss = one["loss"][i];
      EXPECT_NEAR(other["loss"][i].get<double>(), loss, 2e-5 * loss) << i;
    }
  }
}

// The second epoch begins in the middle of the third step. The run is stopped before that.
TEST_F(Epochs, ThatAreResumedInTheMiddleOfOne_GoOnWithWhatIsLeftOfIt) {
  const Words run = {"--epochs", "3"};
  const nlohmann::json straight = Run(run + Words{"--batch", "4"});
  const Words saves = {"--save", save_};
  Run({"--sampling", "shuffle", "--steps", "2", "--batch", "4", "--save", save_});
  const nlohmann::json rest = Run(run + saves + Words{"--resume"});
  EXPECT_EQ(rest["first_step"], 2);
  EXPECT_EQ(rest["steps_done"], 8);
  EXPECT_EQ(rest["epochs_done"], 3.2);
  EXPECT_EQ(rest["weights_sha256"], straight["weights_sha256"]);
}

TEST_F(Epochs, ThatAreResumedOnOtherRanksAndMicroBatches_HaveTheSameLosses) {
  const nlohmann::json straight = Run({"--epochs", "3", "--batch", "4"});
  Run({"--sampling", "shuffle", "--steps", "2", "--batch", "4", "--save", save_});
  const nlohmann::json rest = Run({"--epochs", "3", "--batch", "2", "--accumulate", "2", "--ranks",
                                   "2", "--save", save_, "--resume"});
  ASSERT_EQ(rest["loss"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const double loss = straight["loss"][i + 2];
    EXPECT_NEAR(rest["loss"][i].get<double>(), loss, 2e-5 * loss) << i;
  }
}

TEST_F(Epochs, ThatAreResumedWithOtherSequencesPerStepOrData_AreRefused) {
  Run({"--epochs", "1", "--batch", "4", "--save", save_});
  const Words again = {"--epochs", "2", "--save", save_, "--resume"};
  EXPECT_THAT(std::string(Refused(again + Words{"--batch", "8"}).message()),
              HasSubstr("(--batch times --accumulate) was 4 and is 8"));
  folder_.Write("text", SomeText(32 * 10 + 21));
  EXPECT_THAT(std::string(Refused(again).message()), HasSubstr("data was 340 bytes"));
}

TEST_F(Epochs, OnShards_AreThoseOnTheSameTokensAsText) {
  const nlohmann::json text = Run({"--epochs", "2"});
  const std::string bytes = SomeText(32 * 10 + 20);
  std::string tokens;
  for (const char byte : bytes) tokens += {byte, '\0'};  // as uint16
  folder_.Write("shards/a.bin", tokens.substr(0, 202));
  folder_.Write("shards/b.bin", tokens.substr(202));
  Words arguments = Arguments({"--epochs", "2"});
  arguments[0] = "--shards";
  arguments[1] = folder_ / "shards";
  ASSERT_TRUE(ranks_->Train(arguments).ok());
  const nlohmann::json shards = nlohmann::json::parse(std::ifstream(report_));
  EXPECT_EQ(shards["loss_hex"], text["loss_hex"]);
  EXPECT_EQ(shards["weights_sha256"], text["weights_sha256"]);
}

TEST_F(Epochs, ShorterThanAStep_AreSaidToRepeat) {
  const nlohmann::json report = Run({"--epochs", "4", "--batch", "16"});
  EXPECT_EQ(report["steps"], 3);
  EXPECT_EQ(report["epochs_done"], 4.8);
  ASSERT_EQ(report["notes"].size(), 1u);
  EXPECT_THAT(report["notes"][0].get<std::string>(),
              HasSubstr("--batch 16: a step takes 16 sequences and an epoch has 10"));
}

TEST_F(Epochs, OfACommand_AreRefusedBeforeItStartsRanks) {
  const CommandResult both = RunTrainer(Arguments({"--epochs", "2", "--steps", "3"}));
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--epochs and --steps are both given"));
  const CommandResult run =
      RunTrainer(Arguments({"--epochs", "2", "--ranks", "2", "--progress", "lines"}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("order: shuffle, 10 sequences an epoch, 5 steps of 4"));
  EXPECT_THAT(run.err, HasSubstr("step 5/5"));
}

}  // namespace
}  // namespace geminid::trainer
