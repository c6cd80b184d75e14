// --eval-only: the loss of a model without training.
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
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
  return text;
}

class EvaluationOfAModel : public testing::Test {
 public:
  static void SetUpTestSuite() { ranks_ = std::make_unique<RankThreads>(); }
  static void TearDownTestSuite() { ranks_.reset(); }

 protected:
  Words OnText(const Words& more) const {
    return Words{"--text",
                 text_,
                 "--validation",
                 "0.25",
                 "--validation-batches",
                 "3",
                 "--batch",
                 "4",
                 "--threads",
                 "1",
                 "--report",
                 report_} +
           more;
  }
  nlohmann::json Run(const Words& arguments) const {
    std::filesystem::remove(report_);
    const absl::Status ended = ranks_->Train(arguments);
    EXPECT_TRUE(ended.ok()) << testing::PrintToString(arguments) << ended;
    return ended.ok() ? nlohmann::json::parse(std::ifstream(report_)) : nlohmann::json();
  }
  // Trains four steps, saves into save_, and returns the report.
  nlohmann::json Trained(const Words& more) const {
    return Run(OnText(Words{"--steps", "4", "--lr", "3e-3", "--warmup-steps", "2", "--save", save_,
                            "--export", export_} +
                      more));
  }
  nlohmann::json Evaluated(const Words& more) const {
    return Run(OnText(Words{"--eval-only", "--load", save_} + more));
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", SomeText(3000));
  const std::string report_ = folder_ / "report.json";
  const std::string save_ = folder_ / "run";
  const std::string export_ = folder_ / "exported";
  inline static std::unique_ptr<RankThreads> ranks_;
};

// The losses are equal to the last bit in both types, because the values are those of the run.
TEST_F(EvaluationOfAModel, OfACheckpoint_IsTheLossThatItsRunMeasuredLast) {
  for (const Words& model : std::vector<Words>{{"--model", "gpt2-tiny"},
                                               {"--model", "llama-tiny", "--dtype", "fp32"},
                                               {"--model", "mixtral-tiny"},
                                               {"--model", "gpt2-tiny", "--lora-rank", "2"}}) {
    SCOPED_TRACE(testing::PrintToString(model));
    std::filesystem::remove_all(save_);
    std::filesystem::remove_all(export_);
    const nlohmann::json trained = Trained(model);
    const nlohmann::json evaluated = Evaluated({});
    EXPECT_EQ(evaluated["validation_loss"], trained["validation"].back()["loss"]);
    EXPECT_EQ(evaluated["validation_tokens"], trained["validation_tokens"]);
    EXPECT_EQ(evaluated["dtype"], trained["dtype"]);
    EXPECT_NEAR(evaluated["perplexity"].get<double>(),
                std::exp(evaluated["validation_loss"].get<double>()), 1e-6);
    EXPECT_EQ(evaluated["ended_by"], "evaluation");
  }
}

TEST_F(EvaluationOfAModel, OnAnyRanks_IsTheSameToRounding) {
  const nlohmann::json trained = Trained({"--model", "gpt2-tiny", "--dtype", "fp32"});
  const double loss = trained["validation"].back()["loss"];
  for (const Words& shares :
       std::vector<Words>{{"--ranks", "2"},
                          {"--ranks", "4"},
                          {"--ranks", "2", "--parallel", "pipeline=2"},
                          {"--ranks", "2", "--parallel", "sequence=ulysses:2"},
                          {"--ranks", "2", "--parallel", "zero=1"}}) {
    const nlohmann::json evaluated = Evaluated(shares);
    EXPECT_EQ(evaluated["world_size"], std::stoi(shares[1]));
    EXPECT_NEAR(evaluated["validation_loss"].get<double>(), loss, 1e-5 * loss)
        << testing::PrintToString(shares);
  }
}

TEST_F(EvaluationOfAModel, OfAHuggingFaceFolder_IsThatOfTheCheckpointWithTheSameValues) {
  Trained({"--model", "gpt2-tiny"});
  const nlohmann::json checkpoint = Evaluated({});
  const nlohmann::json exported =
      Run(OnText({"--eval-only", "--load", export_, "--dtype", "bf16"}));
  EXPECT_EQ(exported["validation_loss_hex"], checkpoint["validation_loss_hex"]);
}

// Weights take two bytes per parameter in bf16 and four in fp32. There is no optimizer state.
TEST_F(EvaluationOfAModel, HasNoStateButWeightsAndWritesNothingButTheReport) {
  const nlohmann::json trained = Trained({"--model", "gpt2-tiny", "--dtype", "fp32"});
  const auto before = folder_.Entries();
  const auto time = std::filesystem::last_write_time(save_);
  const nlohmann::json evaluated = Evaluated({});
  const double parameters = evaluated["parameters"];
  EXPECT_LT(evaluated["model_state_bytes"].get<double>(), 4.5 * parameters);
  EXPECT_GT(trained["model_state_bytes"].get<double>(), 11.5 * parameters);
  EXPECT_EQ(folder_.Entries(), before);
  EXPECT_EQ(std::filesystem::last_write_time(save_), time);
}

TEST_F(EvaluationOfAModel, InASmallArena_HasTheSameBits) {
  Trained({"--model", "gpt2-tiny"});
  const nlohmann::json ample = Evaluated({});
  for (const char* placement : {"auto", "cpu"}) {
    const nlohmann::json tight = Evaluated({"--device-memory", "1MiB", "--placement", placement});
    EXPECT_EQ(tight["validation_loss_hex"], ample["validation_loss_hex"]) << placement;
  }
}

TEST_F(EvaluationOfAModel, WithoutAShareHeldOut_IsOfAllData) {
  Trained({"--model", "gpt2-tiny"});
  const std::string held = folder_.Write("held", SomeText(3000).substr(2250));
  const nlohmann::json whole =
      Run({"--eval-only", "--load", save_, "--text", held, "--batch", "4", "--validation-batches",
           "3", "--threads", "1", "--report", report_});
  EXPECT_EQ(whole["validation_loss_hex"], Evaluated({})["validation_loss_hex"]);
}

TEST_F(EvaluationOfAModel, OnDataThatTheRunHasTrainedOn_SaysSo) {
  Trained({"--model", "gpt2-tiny"});
  const auto notes = [&](const std::string& text, const Words& more) {
    return Run(Words{"--eval-only", "--load", save_, "--text", text, "--validation-batches", "1",
                     "--batch", "1", "--threads", "1", "--report", report_} +
               more)["notes"]
        .dump();
  };
  const std::string words = "has trained on: it held out 0.25 of it; give --validation 0.25";
  EXPECT_THAT(notes(text_, {"--validation", "0.5"}), HasSubstr(words));
  EXPECT_THAT(notes(text_, {}), HasSubstr(words));
  for (const char* no_more : {"0.25", "0.125"}) {
    EXPECT_EQ(notes(text_, {"--validation", no_more}), "[]");
  }
  EXPECT_EQ(notes(folder_.Write("other", SomeText(2999)), {"--validation", "0.5"}), "[]");
}

TEST_F(EvaluationOfAModel, ByACommand_SaysTheLossAndWhatItDidNotUse) {
  Trained({"--model", "gpt2-tiny"});
  const Words command = OnText({"--eval-only", "--load", save_, "--lr", "3e-3", "--ranks", "2"});
  const CommandResult result = RunTrainer(command);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--lr: it does nothing with --eval-only"));
  EXPECT_THAT(result.err,
              testing::ContainsRegex("loss [0-9.]+, perplexity [0-9.]+, of 768 tokens"));
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(report_));
  EXPECT_EQ(report["notes"][0], "--lr: it does nothing with --eval-only");
  EXPECT_EQ(report["world_size"], 2);
}

TEST_F(EvaluationOfAModel, OfNothingOrNowhere_EndsWithACodeAndWords) {
  const CommandResult nothing = RunTrainer(OnText({"--eval-only", "--model", "gpt2-tiny"}));
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("--eval-only: there is nothing to evaluate"));
  const CommandResult missing = RunTrainer(OnText({"--eval-only", "--load", folder_ / "none"}));
  EXPECT_EQ(missing.code, 4) << missing.err;
  Trained({"--model", "gpt2-tiny"});
  const CommandResult batch = RunTrainer(OnText({"--eval-only", "--load", save_, "--ranks", "3"}));
  EXPECT_EQ(batch.code, 2);
  EXPECT_THAT(batch.err, HasSubstr("--batch 4: it cannot be divided among 3 ranks"));
  const CommandResult little =
      RunTrainer({"--eval-only", "--load", save_, "--text", folder_.Write("little", "abc")});
  EXPECT_EQ(little.code, 2);
  EXPECT_THAT(little.err, HasSubstr("the data has 3 bytes, but one sequence takes 65"));
}

TEST_F(EvaluationOfAModel, StoppedByASignal_WritesAReportWithoutALoss) {
  Trained({"--model", "gpt2-tiny"});
  TrainerProcess run({"--eval-only", "--load", save_, "--text", text_, "--validation-batches",
                      "1000000", "--report", report_},
                     /*columns=*/200);
  ASSERT_TRUE(run.WaitFor("evaluation")) << run.output();
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 128 + SIGTERM) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("stopped by SIGTERM before there was a loss"));
  const nlohmann::json report = nlohmann::json::parse(std::ifstream(report_));
  EXPECT_EQ(report["ended_by"], "SIGTERM");
  EXPECT_TRUE(report["validation_loss"].is_null());
}

}  // namespace
}  // namespace geminid::trainer
