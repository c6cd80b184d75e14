// Runs that are saved, go on, and begin with the values of others, as a user drives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kWide = 200;

class CheckpointsOfRuns : public testing::Test {
 protected:
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "--text",     text_, "--model",    "gpt2-tiny", "--ranks",  "2",
        "--steps",    "8",   "--schedule", "cosine",    "--report", folder_ / "report.json",
        "--progress", "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  CommandResult Run(const std::vector<std::string>& more) const {
    return RunTrainer(Arguments(more));
  }
  nlohmann::json Report() const {
    return nlohmann::json::parse(std::ifstream(folder_ / "report.json"));
  }
  std::string UndisturbedWeights() const {
    EXPECT_EQ(Run({}).code, 0);
    return Report()["weights_sha256"];
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    return text;
  }());
  const std::string run_ = folder_ / "run";
};

TEST_F(CheckpointsOfRuns, Resumed_EndWithTheWeightsOfTheUndisturbed) {
  const std::string undisturbed = UndisturbedWeights();
  const CommandResult first = Run({"--save", run_, "--save-every", "3"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("saved in " + run_ + "/step-000000008"));
  EXPECT_EQ(Report()["weights_sha256"], undisturbed);
  fs::remove_all(run_ + "/step-000000008");
  const CommandResult second = Run({"--save", run_, "--resume"});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(Report()["first_step"], 6);
  EXPECT_EQ(Report()["weights_sha256"], undisturbed);
}

TEST_F(CheckpointsOfRuns, StoppedByASignal_AreSavedAndGoOn) {
  TrainerProcess trainer(Arguments({"--save", run_, "--steps", "1000000", "--progress", "lines"}),
                         kWide);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  trainer.Signal(SIGTERM);
  EXPECT_EQ(trainer.Wait(), 128 + SIGTERM) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("by SIGTERM; saved in " + run_ + "/step-"));
  const int done = Report()["steps_done"].get<int>();
  const std::string steps = std::to_string(done + 2);
  const CommandResult more = Run({"--save", run_, "--resume", "--steps", steps});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(Report()["first_step"], done);
  EXPECT_EQ(Report()["loss"].size(), 2u);
}

TEST_F(CheckpointsOfRuns, Killed_GoOnFromTheLastCheckpoint) {
  const std::vector<std::string> steadily = {"--schedule", "constant"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), steadily.begin(), steadily.end());
    return more;
  };
  TrainerProcess trainer(Arguments(with({"--save", run_, "--save-every", "1", "--steps", "1000000",
                                         "--progress", "lines"})),
                         kWide);
  ASSERT_TRUE(trainer.WaitForStep(2)) << trainer.output();
  trainer.Signal(SIGKILL);
  (void)trainer.Wait();
  int newest = 0;
  for (const auto& entry : fs::directory_iterator(run_)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension().empty()) {
      newest = std::max(newest, std::stoi(name.substr(std::string("step-").size())));
    }
  }
  const std::string steps = std::to_string(newest + 2);
  ASSERT_EQ(Run(with({"--save", run_, "--resume", "--steps", steps})).code, 0);
  const nlohmann::json resumed = Report();
  EXPECT_EQ(resumed["first_step"], newest);
  ASSERT_EQ(Run(with({"--steps", steps})).code, 0);
  EXPECT_EQ(Report()["weights_sha256"], resumed["weights_sha256"]);
}

TEST_F(CheckpointsOfRuns, WithDropout_HaveTheSameBitsWhenResumedAndPlacedElsewhere) {
  const std::vector<std::string> dropout = {"--dropout", "0.2", "--lr", "1e-2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), dropout.begin(), dropout.end());
    return more;
  };
  ASSERT_EQ(Run(with({})).code, 0);
  const nlohmann::json undisturbed = Report();
  ASSERT_EQ(Run(with({"--placement", "cpu", "--device-memory", "2MiB"})).code, 0);
  EXPECT_EQ(Report()["weights_sha256"], undisturbed["weights_sha256"]);
  ASSERT_EQ(Run(with({"--save", run_, "--save-every", "3"})).code, 0);
  fs::remove_all(run_ + "/step-000000008");
  ASSERT_EQ(Run(with({"--save", run_, "--resume"})).code, 0);
  EXPECT_EQ(Report()["weights_sha256"], undisturbed["weights_sha256"]);
  ASSERT_EQ(Run({"--lr", "1e-2"}).code, 0);
  EXPECT_NE(Report()["weights_sha256"], undisturbed["weights_sha256"]);
  EXPECT_EQ(Run({"--dropout", "1"}).code, 2);
}

TEST_F(CheckpointsOfRuns, Logged_GoOnInTheSameFile) {
  const std::string log = folder_ / "run.jsonl";
  ASSERT_EQ(Run({"--save", run_, "--steps", "4", "--log", log, "--tensorboard", folder_ / "board",
                 "--validation", "0.2", "--validation-every", "2", "--schedule", "constant"})
                .code,
            0);
  std::vector<double> losses = Report()["loss"];
  ASSERT_EQ(Run({"--save", run_, "--resume", "--steps", "6", "--log", log, "--validation", "0.2",
                 "--schedule", "constant"})
                .code,
            0);
  const nlohmann::json second = Report();
  for (const double loss : second["loss"]) losses.push_back(loss);
  std::vector<double> logged;
  std::vector<int> measured;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const auto step = nlohmann::json::parse(line);
    logged.push_back(step["loss"]);
    EXPECT_EQ(step["step"], logged.size());
    if (step.contains("validation_loss")) measured.push_back(step["step"]);
  }
  EXPECT_EQ(logged, losses);
  EXPECT_THAT(measured, testing::ElementsAre(2, 4, 6));
}

TEST_F(CheckpointsOfRuns, ResumeWithoutACheckpoint_BeginsAnew) {
  const std::string undisturbed = UndisturbedWeights();
  ASSERT_EQ(Run({"--save", run_, "--resume"}).code, 0);
  EXPECT_EQ(Report()["weights_sha256"], undisturbed);
}

TEST_F(CheckpointsOfRuns, OfAnotherSeed_AreRefused) {
  ASSERT_EQ(Run({"--save", run_}).code, 0);
  const CommandResult other = Run({"--save", run_, "--resume", "--seed", "2", "--steps", "9"});
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_THAT(other.err, HasSubstr("another --seed"));
}

TEST_F(CheckpointsOfRuns, OfOtherTypes_AreRefusedAndLoadedAllTheSame) {
  const std::vector<std::string> more = {"--save", run_, "--resume", "--steps", "9"};
  const auto with = [&](const std::vector<std::string>& types) {
    std::vector<std::string> words = more;
    words.insert(words.end(), types.begin(), types.end());
    return Run(words);
  };
  ASSERT_EQ(Run({"--save", run_}).code, 0);
  const std::string trained = Report()["weights_sha256"];
  const CommandResult norms = with({"--norm-precision", "as-weights"});
  EXPECT_EQ(norms.code, 2) << norms.err;
  EXPECT_THAT(norms.err, HasSubstr("step-000000008' was trained with weights in bf16 and norms in "
                                   "fp32, and this run has bf16 and bf16"));
  const CommandResult weights = with({"--dtype", "fp32"});
  EXPECT_EQ(weights.code, 2) << weights.err;
  EXPECT_THAT(weights.err, HasSubstr("this run has fp32 and fp32"));
  EXPECT_EQ(with({"--norm-precision", "fp32"}).code, 0);
  // Values have no type but fp32.
  ASSERT_EQ(Run({"--load", run_ + "/step-000000008", "--norm-precision", "as-weights", "--steps",
                 "1", "--lr", "0"})
                .code,
            0);
  EXPECT_EQ(Report()["weights_sha256"], trained);
  EXPECT_EQ(Report()["norm_dtype"], "bf16");
}

TEST_F(CheckpointsOfRuns, OfAnotherModel_AreRefusedByTensor) {
  ASSERT_EQ(Run({"--save", run_}).code, 0);
  const CommandResult other = Run({"--save", run_, "--resume", "--hidden", "32", "--steps", "9"});
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.err, HasSubstr("has the shape"));
}

TEST_F(CheckpointsOfRuns, Load_BeginsWithTheValuesAndNotTheMoments) {
  ASSERT_EQ(Run({"--save", run_}).code, 0);
  const std::string trained = Report()["weights_sha256"];
  ASSERT_EQ(Run({"--load", run_ + "/step-000000008", "--steps", "1", "--lr", "0"}).code, 0);
  EXPECT_EQ(Report()["weights_sha256"], trained);
  EXPECT_EQ(Report()["first_step"], 0);
  ASSERT_EQ(Run({"--load", run_, "--steps", "1", "--lr", "0"}).code, 0);  // the newest in it
  EXPECT_EQ(Report()["weights_sha256"], trained);
}

TEST_F(CheckpointsOfRuns, Folder_HoldsTheModelsConfiguration) {
  ASSERT_EQ(Run({"--save", run_}).code, 0);
  const auto config = nlohmann::json::parse(std::ifstream(run_ + "/step-000000008/config.json"));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["vocab_size"], 256);
}

TEST_F(CheckpointsOfRuns, FlagsWithoutAFolder_AreRefused) {
  EXPECT_EQ(Run({"--resume"}).code, 2);
  EXPECT_EQ(Run({"--save-every", "2"}).code, 2);
  EXPECT_EQ(Run({"--save", run_, "--save-every", "0"}).code, 2);
  EXPECT_EQ(Run({"--load", folder_ / "nothing"}).code, 4);
  EXPECT_EQ(Run({"--load", ""}).code, 2);
}

}  // namespace
}  // namespace geminid::trainer
