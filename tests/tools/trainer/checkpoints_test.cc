// Runs that are saved and resumed, or that begin with other runs' values, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
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
    if (name.starts_with("step-") && entry.path().extension().empty()) {
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

TEST_F(CheckpointsOfRuns, WithStateInBFloat16_AreResumedToTheBitAndInNoOtherType) {
  const std::vector<std::string> small = {"--state-dtype", "bf16"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), small.begin(), small.end());
    return more;
  };
  const std::string of_fp32 = UndisturbedWeights();
  const uint64_t fp32_bytes = Report()["model_state_bytes"];
  const CommandResult run = Run(with({"--save", run_, "--save-every", "3"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string undisturbed = Report()["weights_sha256"];
  EXPECT_NE(undisturbed, of_fp32);
  EXPECT_EQ(Report()["state_dtype"], "bf16");
  EXPECT_EQ(Report()["model_state_bytes"].get<uint64_t>() / 8, fp32_bytes / 12);
  fs::remove_all(run_ + "/step-000000008");
  const CommandResult other = Run({"--save", run_, "--resume", "--state-dtype", "fp32"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("--state-dtype was bf16 and is fp32"));
  const CommandResult resumed = Run({"--save", run_, "--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Report()["weights_sha256"], undisturbed);
  // An optimizer without arrays has no state of another type.
  const CommandResult none = Run(with({"--optimizer", "sgd"}));
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("--state-dtype bf16: "));
  EXPECT_THAT(none.err, HasSubstr("sgd with these options has no state"));
}

TEST_F(CheckpointsOfRuns, OfOtherTypes_AreLoadedAllTheSame) {
  ASSERT_EQ(Run({"--save", run_}).code, 0);
  const std::string trained = Report()["weights_sha256"];
  // Exported values are always fp32.
  ASSERT_EQ(Run({"--load", run_ + "/step-000000008", "--norm-precision", "as-weights", "--steps",
                 "1", "--lr", "0"})
                .code,
            0);
  EXPECT_EQ(Report()["weights_sha256"], trained);
  EXPECT_EQ(Report()["norm_dtype"], "bf16");
}

// Runs of one rank: these tests are about folders.
class FoldersOfRuns : public CheckpointsOfRuns {
 protected:
  CommandResult RunOne(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--text",    text_, "--report",   folder_ / "report.json",
                                          "--threads", "1",   "--progress", "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTrainer(arguments);
  }
  std::vector<std::string> Saved() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with('.')) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(FoldersOfRuns, ResumedWithoutFlags_GoOnAsTheyWere) {
  const std::vector<std::string> flags = {
      "--model",    "gpt2-tiny", "--dtype",     "fp32", "--optimizer", "sgd", "--momentum", "0.9",
      "--schedule", "linear",    "--lora-rank", "2",    "--batch",     "2",   "--steps",    "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return more;
  };
  ASSERT_EQ(RunOne(with({})).code, 0);
  const std::string undisturbed = Report()["weights_sha256"];
  ASSERT_EQ(RunOne(with({"--save", run_, "--save-every", "2"})).code, 0);
  fs::remove_all(run_ + "/step-000000004");
  const CommandResult resumed = RunOne({"--save", run_, "--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Report()["first_step"], 2);
  EXPECT_EQ(Report()["weights_sha256"], undisturbed);
  // After the last step there is nothing to do, and the run says so.
  const CommandResult again = RunOne({"--save", run_, "--resume", "--export", folder_ / "out/"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("step 4 of 4 was reached before, so no step is left to train"));
  EXPECT_TRUE(fs::exists(folder_ / "out/model.safetensors"));
  // A run on other data is another run.
  std::ofstream(text_, std::ios::app) << "more";
  const CommandResult other = RunOne({"--save", run_, "--resume", "--steps", "5"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("data was 3000 bytes, CRC-32C "));
  EXPECT_THAT(other.err, HasSubstr(" and is 3004 bytes, CRC-32C "));
}

TEST_F(FoldersOfRuns, WithAnotherRunsCheckpoints_AreRefusedOrSavedOver) {
  const std::vector<std::string> flags = {"--model", "gpt2-tiny", "--save", run_, "--steps"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  ASSERT_EQ(RunOne(with({"3", "--save-every", "1"})).code, 0);
  EXPECT_THAT(Saved(), testing::ElementsAre("step-000000002", "step-000000003"));
  const CommandResult refused = RunOne(with({"1", "--seed", "2"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--save-over to replace them"));
  ASSERT_EQ(RunOne(with({"1", "--seed", "2", "--save-over"})).code, 0);
  EXPECT_THAT(Saved(), testing::ElementsAre("step-000000001"));
}

TEST_F(FoldersOfRuns, InUse_AreRefusedToASecondRunUntilTheFirstIsKilled) {
  TrainerProcess first({"--text", text_, "--model", "gpt2-tiny", "--steps", "1000000", "--save",
                        run_, "--ranks", "2", "--progress", "lines"},
                       kWide);
  ASSERT_TRUE(first.WaitForStep(1)) << first.output();
  for (const char* ranks : {"1", "2"}) {
    const CommandResult second =
        RunOne({"--model", "gpt2-tiny", "--steps", "1", "--save", run_, "--ranks", ranks});
    EXPECT_EQ(second.code, 10) << second.err;
    EXPECT_THAT(second.err, HasSubstr("' is in use by another run (pid "));
    EXPECT_THAT(second.err, testing::Not(HasSubstr("rank 0"))) << "no rank was started";
  }
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(), 128 + SIGTERM);
  EXPECT_EQ(RunOne({"--save", run_, "--resume", "--steps", "1000001", "--seed", "2"}).code, 2);
}

// Whether its record says that the checkpoint is healthy, as --resume reads it.
bool IsHealthyOnDisk(const std::string& checkpoint) {
  return nlohmann::json::parse(std::ifstream(checkpoint + "/state.json"))["healthy"];
}

TEST_F(FoldersOfRuns, ThatDiverge_GoOnFromTheLastGoodCheckpoint) {
  // A rate that no model survives: after the warm-up the loss is not a number.
  const std::vector<std::string> flags = {
      "--model", "gpt2-tiny", "--steps",        "60", "--save",  run_, "--save-every", "1",
      "--lr",    "1000",      "--warmup-steps", "10", "--ranks", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  const CommandResult diverged = RunOne(with({"--stop-on-nan"}));
  ASSERT_EQ(diverged.code, 11) << diverged.err;
  const int done = Report()["steps_done"].get<int>();
  ASSERT_THAT(diverged.err, HasSubstr(" is the last good checkpoint, --resume goes on"));
  std::string good;
  for (const std::string& name : Saved()) {
    if (IsHealthyOnDisk(run_ + "/" + name)) good = name;
  }
  EXPECT_THAT(diverged.err, HasSubstr(run_ + "/" + good + " is the last good checkpoint"));
  const int good_step = std::stoi(good.substr(std::string("step-").size()));
  EXPECT_LT(good_step, done) << "the state after the divergence was not saved";
  // Without --stop-on-nan, later checkpoints do not replace the healthy one.
  fs::remove_all(run_);
  ASSERT_EQ(RunOne(with({"--steps", std::to_string(done + 4)})).code, 0);
  EXPECT_EQ(Saved().front(), good);
  EXPECT_EQ(Saved().size(), 3u);
  const CommandResult resumed = RunOne({"--save", run_, "--resume", "--lr", "0", "--warmup-steps",
                                        "0", "--steps", std::to_string(good_step + 1)});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Report()["first_step"], good_step);
  EXPECT_THAT(resumed.err, HasSubstr("' is passed over"));
  EXPECT_THAT(resumed.err, HasSubstr("--lr was 1000 and is 0"));
}

// The format: the header's length, the header, and all values
// (https://huggingface.co/docs/safetensors).
void PutNanIntoAnAdapter(const std::string& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t header_bytes = 0;
  bytes.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, ' ');
  bytes.read(header.data(), static_cast<std::streamsize>(header.size()));
  const nlohmann::json tensors = nlohmann::json::parse(header);
  for (const auto& [name, tensor] : tensors.items()) {
    if (name.find("lora_") == std::string::npos) continue;
    const uint64_t end = tensor["data_offsets"][1];
    bytes.seekp(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + end - 4));
    bytes.write("\xff\xff\xff\xff", 4);
    return;
  }
  FAIL() << file << " has no adapter";
}

TEST_F(FoldersOfRuns, WithAnAlteredByteOrAdapter_AreRefusedByAllWhoRead) {
  ASSERT_EQ(
      RunOne({"--model", "gpt2-tiny", "--steps", "1", "--save", run_, "--lora-rank", "2"}).code, 0);
  const std::string plain = folder_ / "plain";
  fs::copy(run_ + "/step-000000001", plain);
  fs::remove(plain + "/checksums-00000-of-00001.safetensors");
  for (const std::string& file :
       {run_ + "/step-000000001/model.safetensors", plain + "/model.safetensors"}) {
    PutNanIntoAnAdapter(file);
  }
  for (const std::string& from : {run_, plain}) {
    const CommandResult loaded = RunOne({"--load", from, "--steps", "1"});
    EXPECT_NE(loaded.code, 0) << from;
    const CommandResult generated =
        RunTrainer({"generate", "--load", from, "--prompt", "a", "--tokens", "1"});
    EXPECT_NE(generated.code, 0) << from;
    EXPECT_THAT(loaded.err, HasSubstr(from == run_ ? "were altered" : "is not finite"));
    EXPECT_THAT(generated.err, HasSubstr("lora_"));
  }
  EXPECT_THAT(RunOne({"--save", run_, "--resume", "--steps", "2"}).err, HasSubstr("were altered"));
}

TEST_F(FoldersOfRuns, WithADamagedNewestCheckpoint_NameTheOlderOneToGoOnFrom) {
  ASSERT_EQ(
      RunOne({"--model", "gpt2-tiny", "--steps", "4", "--save", run_, "--save-every", "2"}).code,
      0);
  const std::string newest = run_ + "/step-000000004";
  const std::string advice =
      "; remove '" + newest + "' to go on from '" + run_ + "/step-000000002'";
  const auto resume = [&] { return RunOne({"--save", run_, "--resume", "--steps", "5"}); };
  fs::resize_file(newest + "/optimizer.safetensors", 1000);
  const CommandResult truncated = resume();
  EXPECT_EQ(truncated.code, 1) << truncated.err;
  EXPECT_THAT(truncated.err, HasSubstr(advice));
  fs::remove(newest + "/optimizer.safetensors");
  EXPECT_THAT(resume().err, HasSubstr(advice));
  fs::remove(newest + "/config.json");
  EXPECT_THAT(resume().err, HasSubstr(advice));
  std::ofstream(newest + "/run.json") << "{";
  EXPECT_THAT(resume().err, HasSubstr(advice));
  fs::remove(newest + "/state.json");
  const CommandResult resumed = resume();
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Report()["first_step"], 2);
  EXPECT_THAT(resumed.err, HasSubstr("'" + newest + "' is passed over: it has no state.json"));
}

TEST_F(CheckpointsOfRuns, ResumedByOtherRanks_SayBothMeshesInOneLine) {
  ASSERT_EQ(Run({"--save", run_, "--save-every", "4", "--schedule", "constant"}).code, 0);
  fs::remove_all(run_ + "/step-000000008");
  const CommandResult more = Run({"--save", run_, "--resume", "--ranks", "1"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr("mesh was pipeline=1 x data=2 x sequence=1 and is pipeline=1 x "
                                  "data=1 x sequence=1"));
  EXPECT_EQ(Report()["first_step"], 4);
  fs::remove_all(run_ + "/step-000000008");
  const CommandResult cannot = Run({"--save", run_, "--resume", "--ranks", "3"});
  EXPECT_EQ(cannot.code, 2);
  EXPECT_THAT(cannot.err, HasSubstr("--batch 4: it cannot be divided among 3 ranks"));
}

TEST_F(CheckpointsOfRuns, Load_BeginsWithTheValuesAndNotTheMoments) {
  ASSERT_EQ(Run({"--save", run_}).code, 0);
  const std::string trained = Report()["weights_sha256"];
  ASSERT_EQ(Run({"--load", run_ + "/step-000000008", "--steps", "1", "--lr", "0"}).code, 0);
  EXPECT_EQ(Report()["weights_sha256"], trained);
  EXPECT_EQ(Report()["first_step"], 0);
  ASSERT_EQ(Run({"--load", run_, "--steps", "1", "--lr", "0"}).code, 0);  // the newest one
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
