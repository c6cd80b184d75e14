// The whole program: small runs, each with a daemon of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <sstream>

#include "base/flag_values.h"
#include "base/processors.h"
#include "tests/base/long_tests.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "training/models/model_config.h"
#include "training/settings/device_need.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

std::string SomeText() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i % 10) + " of the text. ";
  return text;
}

class Training : public testing::Test {
 protected:
  CommandResult Run(const std::vector<std::string>& more,
                    const std::vector<std::string>& environment = {}) {
    std::vector<std::string> arguments = {
        "--text", text_,  "--model",  "gpt2-tiny",   "--steps",        "6", "--batch", "4",
        "--lr",   "3e-3", "--report", report_path(), "--warmup-steps", "10"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTrainer(arguments, environment);
  }
  std::string report_path() const { return folder_ / "report.json"; }
  std::string Report() const {
    std::stringstream text;
    text << std::ifstream(report_path()).rdbuf();
    return text.str();
  }
  // The value of a key at the report's top level, as text without blanks.
  std::string Field(const std::string& key) const {
    const std::string report = Report();
    std::smatch match;
    const std::regex pattern("\n  \"" + key + "\": ((\\[|\\{)[^\\]\\}]*[\\]\\}]|[^\n]*)");
    if (!std::regex_search(report, match, pattern)) return "missing";
    std::string value = match[1];
    std::erase_if(value, [](char c) { return c == ' ' || c == '\n'; });
    if (value.ends_with(',')) value.pop_back();
    return value;
  }
  double Number(const std::string& key) const { return std::stod(Field(key)); }
  // The workspace's peak in bytes.
  double PeakWorkspace() const {
    const std::string peak = Field("device_bytes_peak");
    return std::stod(peak.substr(peak.find("\"non_model\":") + 12));
  }
  CommandResult RunWith(std::vector<std::string> shape, const std::string& memory) {
    shape.insert(shape.end(), {"--steps", "2", "--device-memory", memory});
    return Run(shape);
  }
  // A run of this shape is refused with little memory. Returns the size that the refusal names.
  std::string SizeNamed(const std::vector<std::string>& shape) {
    const CommandResult refused = RunWith(shape, "64KiB");
    EXPECT_EQ(refused.code, 7) << refused.err;
    std::smatch said;
    const bool names = std::regex_search(
        refused.err, said, std::regex("this run trains with --device-memory ([^;]+);"));
    EXPECT_TRUE(names) << refused.err;
    return names ? said[1].str() : "";
  }
  void TrainWithTheSizeNamed(const std::vector<std::string>& shape) {
    SCOPED_TRACE(testing::PrintToString(shape));
    const std::string size = SizeNamed(shape);
    const CommandResult trained = RunWith(shape, size);
    EXPECT_EQ(trained.code, 0) << size << ": " << trained.err;
  }
  double FirstLoss() const { return std::stod(Field("loss").substr(1)); }
  double LastLoss() const {
    const std::string losses = Field("loss");
    return std::stod(losses.substr(losses.rfind(',') + 1));
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", SomeText());
};

TEST_F(Training, OfOneRank_LowersTheLossAndReportsEverything) {
  const CommandResult result = Run({"--steps", "20"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("step 20/20  loss "));
  EXPECT_EQ(Field("schema_version"), "1");
  EXPECT_EQ(Field("world_size"), "1");
  EXPECT_EQ(Field("weights_sha256").size(), 64 + 2);
  EXPECT_GE(Number("host_bytes_per_parameter"), 12.0);
  EXPECT_GT(Number("tokens_per_second"), 0);
  EXPECT_NEAR(FirstLoss(), std::log(256.0), 0.2);
  EXPECT_LT(LastLoss(), FirstLoss() - 1.0);
}

TEST_F(Training, OfSeveralGradientsAStep_MeasuresTheirNoiseAndAdvises) {
  for (const std::vector<std::string>& shape : std::vector<std::vector<std::string>>{
           {"--accumulate", "2", "--batch", "2"}, {"--ranks", "2", "--threads", "1"}}) {
    std::vector<std::string> words = shape;
    words.insert(words.end(), {"--steps", "20"});
    const CommandResult result = Run(words);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("gradient noise scale "));
    EXPECT_THAT(Report(), HasSubstr("\"samples\": 20"));
    EXPECT_THAT(Report(), HasSubstr("\"learning_rate_rule\": \"square root\""));
  }
}

TEST_F(Training, OfOneGradientAStep_SaysWhyItsNoiseIsNotKnown) {
  const CommandResult result = Run({});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, testing::Not(HasSubstr("noise")));
  EXPECT_THAT(Report(), HasSubstr("give --accumulate 2 (with half the --batch) or --ranks 2"));
}

// geminictl plan names this number, too (place_test.cc).
TEST_F(Training, SizeNamedWhereMemoryIsTooLittle_IsThatOfItsThreads) {
  TrainOptions options;
  options.model = *FindPreset("gpt2-3m");
  options.batch = 4;
  for (const size_t threads : {1, 4}) {
    EXPECT_EQ(SizeNamed({"--model", "gpt2-3m", "--threads", std::to_string(threads)}),
              base::ExactBytes(EnoughDeviceBytes(options, /*world_size=*/1, threads)));
  }
}

TEST_F(Training, WithEveryPlacement_GivesTheSameBits) {
  std::string losses, weights;
  for (const std::vector<std::string>& where : std::vector<std::vector<std::string>>{
           {"--placement", "device"},
           {"--placement", "cpu"},
           {"--placement", "auto"},
           {"--placement", "auto", "--device-memory", "1664KiB"},
           {"--placement", "cpu", "--copy-bandwidth", "200MB/s"}}) {
    const CommandResult result = Run(where);
    ASSERT_EQ(result.code, 0) << where[1] << ": " << result.err;
    if (losses.empty()) {
      losses = Field("loss_hex");
      weights = Field("weights_sha256");
    }
    EXPECT_EQ(Field("loss_hex"), losses) << where[1];
    EXPECT_EQ(Field("weights_sha256"), weights) << where[1];
  }
}

TEST_F(Training, OnAnyNumberOfThreads_GivesTheSameBits) {
  for (const std::vector<std::string>& model : std::vector<std::vector<std::string>>{
           {"--model", "gpt2-tiny", "--dropout", "0.1"},
           {"--model", "llama-tiny", "--hidden", "128", "--dtype", "fp32"}}) {
    std::string losses, weights;
    for (const char* threads : {"1", "2", "3"}) {
      std::vector<std::string> flags = model;
      flags.insert(flags.end(), {"--steps", "3", "--threads", threads});
      const CommandResult result = Run(flags);
      ASSERT_EQ(result.code, 0) << result.err;
      EXPECT_EQ(Field("threads"), threads);
      EXPECT_THAT(result.err, HasSubstr(std::string("1 rank of ") + threads + " thread"));
      if (losses.empty()) {
        losses = Field("loss_hex");
        weights = Field("weights_sha256");
      }
      EXPECT_EQ(Field("loss_hex"), losses) << threads;
      EXPECT_EQ(Field("weights_sha256"), weights) << threads;
    }
  }
}

TEST_F(Training, WithoutAskingForThreads_TakesTheProcessorsThatItsRanksMayUse) {
  const size_t processors = base::AllowedProcessors().size();
  const std::optional<double> quota = base::ProcessorQuota();
  for (const size_t ranks : {1, 2}) {
    ASSERT_EQ(Run({"--steps", "1", "--ranks", std::to_string(ranks)}).code, 0);
    size_t threads = processors / ranks;
    if (quota) threads = std::min(threads, static_cast<size_t>(*quota) / ranks);
    EXPECT_EQ(Number("threads"), static_cast<double>(std::max<size_t>(1, threads)));
  }
}

TEST_F(Training, ThatKeepsOrRecomputesActivations_GivesTheSameBits) {
  for (const char* ranks : {"1", "2"}) {
    ASSERT_EQ(Run({"--ranks", ranks, "--activations", "recompute"}).code, 0);
    const std::string losses = Field("loss_hex"), weights = Field("weights_sha256");
    EXPECT_EQ(Field("activations"), "\"recompute\"");
    const double least = PeakWorkspace();
    for (const char* placement : {"auto", "cpu", "device"}) {
      const CommandResult kept =
          Run({"--ranks", ranks, "--activations", "keep", "--placement", placement});
      ASSERT_EQ(kept.code, 0) << kept.err;
      EXPECT_EQ(Field("activations"), "\"keep\"");
      EXPECT_EQ(Field("loss_hex"), losses);
      EXPECT_EQ(Field("weights_sha256"), weights);
      EXPECT_GT(PeakWorkspace(), least);
      EXPECT_EQ(Number("activation_bytes"), 0);
    }
  }
}

TEST_F(Training, ThatOffloadsActivations_GivesTheSameBitsInLessMemory) {
  const std::vector<std::string> deep = {"--layers", "6", "--steps", "2"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), deep.begin(), deep.end());
    return Run(more).code;
  };
  for (const char* dtype : {"bf16", "fp32"}) {
    ASSERT_EQ(run({"--activations", "keep", "--dtype", dtype}), 0);
    const std::string losses = Field("loss_hex"), weights = Field("weights_sha256");
    const double most = PeakWorkspace();
    for (const char* ranks : {"1", "2"}) {
      // One rank's bf16 products take up to 1.3 MiB on processors without bf16 instructions.
      const bool less = std::string(dtype) == "bf16" && std::string(ranks) == "2";
      const std::string memory = less ? "1280KiB" : "2560KiB";
      ASSERT_EQ(run({"--activations", "offload", "--dtype", dtype, "--ranks", ranks,
                     "--device-memory", memory}),
                0);
      EXPECT_EQ(Field("activations"), "\"offload\"");
      if (std::string(ranks) == "1") {
        EXPECT_EQ(Field("loss_hex"), losses);
        EXPECT_EQ(Field("weights_sha256"), weights);
        EXPECT_LT(PeakWorkspace() + Number("activation_place_bytes"), most);
        EXPECT_GT(Number("activation_bytes"), 0);
      }
    }
  }
}

TEST_F(Training, ThatChoosesWhatToKeep_FitsWhereverRecomputingDoesAndSaysWhy) {
  const CommandResult ample = Run({"--steps", "2"});
  ASSERT_EQ(ample.code, 0) << ample.err;
  EXPECT_EQ(Field("activations"), "\"keep\"");
  EXPECT_THAT(ample.err, HasSubstr("activations keep: keeping activations takes "));
  const std::string losses = Field("loss_hex");
  int kept = 0, left = 0;
  for (uint64_t kib = 1024; kib <= 8192; kib *= 2) {
    const std::string memory = std::to_string(kib) + "KiB";
    if (Run({"--steps", "2", "--device-memory", memory, "--activations", "recompute"}).code != 0)
      continue;
    const CommandResult result = Run({"--steps", "2", "--device-memory", memory});
    ASSERT_EQ(result.code, 0) << memory << ": " << result.err;
    EXPECT_EQ(Field("loss_hex"), losses) << memory;
    ++(Field("activations") == "\"keep\"" ? kept : left);
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(left, 0);
}

TEST_F(Training, WithStateInBFloat16_SaysSo) {
  const CommandResult result = Run({"--steps", "1", "--state-dtype", "bf16"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("adamw with bf16 state"));
}

TEST_F(Training, OnAStrictDevice_GivesTheSameBits) {
  const std::vector<std::string> tight = {"--ranks", "2", "--device-memory", "1280KiB"};
  ASSERT_EQ(Run(tight).code, 0);
  const std::string losses = Field("loss_hex"), weights = Field("weights_sha256");
  const CommandResult strict = Run(tight, {"GEMINID_STRICT_DEVICE=1"});
  ASSERT_EQ(strict.code, 0) << strict.err;
  EXPECT_EQ(Field("loss_hex"), losses);
  EXPECT_EQ(Field("weights_sha256"), weights);
}

TEST_F(Training, UnderALimitOfInstructionSets_SaysSoAndRepeatsItsBits) {
  std::string losses, weights;
  for (const char* placement : {"device", "cpu"}) {
    const CommandResult result =
        Run({"--steps", "2", "--placement", placement}, {"GEMINID_MAX_ISA=sse2"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(Field("instruction_set"), "\"sse2\"");
    EXPECT_THAT(result.err, HasSubstr("instruction sets: sse2, limited by GEMINID_MAX_ISA"));
    if (losses.empty()) {
      losses = Field("loss_hex");
      weights = Field("weights_sha256");
    }
    EXPECT_EQ(Field("loss_hex"), losses);
    EXPECT_EQ(Field("weights_sha256"), weights);
  }
}

TEST_F(Training, OfTwoRanks_StaysCloseToOneAndRepeatsItsBits) {
  ASSERT_EQ(Run({}).code, 0);
  const double one = std::stod(Field("loss").substr(1));
  const CommandResult first = Run({"--ranks", "2"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(Field("world_size"), "2");
  EXPECT_NEAR(std::stod(Field("loss").substr(1)), one, 1e-4);
  const std::string losses = Field("loss_hex"), weights = Field("weights_sha256");
  ASSERT_EQ(Run({"--ranks", "2", "--placement", "cpu"}).code, 0);
  EXPECT_EQ(Field("loss_hex"), losses);
  EXPECT_EQ(Field("weights_sha256"), weights);
}

TEST_F(Training, WithALossScaleOfAPowerOfTwo_GivesTheSameBits) {
  for (const char* dtype : {"bf16", "fp32"}) {
    ASSERT_EQ(Run({"--dtype", dtype, "--steps", "3"}).code, 0);
    const std::string losses = Field("loss_hex"), weights = Field("weights_sha256");
    for (const char* scale : {"dynamic", "256"}) {
      const CommandResult result = Run({"--dtype", dtype, "--steps", "3", "--loss-scale", scale});
      ASSERT_EQ(result.code, 0) << result.err;
      EXPECT_EQ(Field("loss_hex"), losses) << dtype << ' ' << scale;
      EXPECT_EQ(Field("weights_sha256"), weights) << dtype << ' ' << scale;
    }
  }
}

TEST_F(Training, WithEveryOptimizer_LowersTheLoss) {
  for (const char* name :
       {"adamw", "adam", "lamb", "lars", "sgd", "adagrad", "lion", "adafactor", "came"}) {
    std::vector<std::string> flags = {"--optimizer", name, "--steps", "12", "--ranks", "2"};
    // Rates for such a short run. Adafactor's own rate is suitable.
    const std::map<std::string, const char*> rates = {{"lamb", "2e-2"}, {"lars", "10"},
                                                      {"sgd", "0.3"},   {"adagrad", "2e-2"},
                                                      {"lion", "1e-3"}, {"adafactor", "1"}};
    const auto rate = rates.find(name);
    flags.insert(flags.end(), {"--lr", rate == rates.end() ? "3e-3" : rate->second});
    const CommandResult result = Run(flags);
    ASSERT_EQ(result.code, 0) << name << ": " << result.err;
    EXPECT_EQ(Field("optimizer"), std::string("\"") + name + "\"");
    EXPECT_LT(LastLoss(), FirstLoss() - 0.2) << name;
  }
}

TEST_F(Training, WithEveryPlaceOfTheOptimizersState_GivesTheSameBits) {
  std::string weights;
  for (const char* where : {"auto", "host", "0.5", "1", "device", "streamed"}) {
    const CommandResult result = Run({"--optimizer-state", where});
    ASSERT_EQ(result.code, 0) << where << ": " << result.err;
    if (weights.empty()) weights = Field("weights_sha256");
    EXPECT_EQ(Field("weights_sha256"), weights) << where;
    EXPECT_EQ(Number("device_state_bytes") > 0, std::string(where) != "host") << where;
  }
}

TEST_F(Training, WithTheOptimizersStateOnDisk_GivesTheSameBitsAndLeavesNothing) {
  ASSERT_EQ(Run({"--optimizer-state", "host"}).code, 0);
  const std::string weights = Field("weights_sha256");
  const std::string disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  const CommandResult result =
      Run({"--optimizer-state", "disk", "--state-disk", disk, "--restarts", "1"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Field("weights_sha256"), weights);
  EXPECT_THAT(result.err, HasSubstr("optimizer state: all on disk; 1 disk"));
  EXPECT_TRUE(std::filesystem::is_empty(disk));
}

// State that does not fit in host memory goes to the disk, if there is one.
TEST_F(Training, InTooLittleHostMemoryForAllState_HasTheRestOnDiskWithTheSameBits) {
  ASSERT_EQ(Run({"--optimizer-state", "host"}).code, 0);
  const std::string weights = Field("weights_sha256");
  const std::string disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  const auto bytes = static_cast<uint64_t>(0.8 * Number("host_bytes"));
  const std::string host_memory = std::to_string(bytes) + "B";
  EXPECT_EQ(Run({"--host-memory", host_memory}).code, 7);
  const CommandResult result = Run({"--host-memory", host_memory, "--state-disk", disk});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Field("weights_sha256"), weights);
  EXPECT_THAT(result.err, HasSubstr("chunks on disk: state would take"));
  const CommandResult enough = Run({"--state-disk", disk});
  EXPECT_THAT(enough.err, HasSubstr("optimizer state: none on disk"));
}

// Workspace of experts grows beyond the plan, so weights must make room. The host has hardly more
// memory than the state takes.
TEST_F(Training, OfExpertsInLittleDeviceMemory_NeedsNoHostMemoryBesideItsState) {
  const auto run = [this](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "--model", "mixtral-20m",   "--batch", "2",       "--device-memory",
        "48MiB",   "--activations", "keep",    "--steps", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  };
  ASSERT_EQ(run({}).code, 0);
  const std::string weights = Field("weights_sha256");
  constexpr double kOfTheState = 1.005;
  const auto bytes = static_cast<uint64_t>(kOfTheState * Number("host_bytes"));
  const CommandResult little = run({"--host-memory", std::to_string(bytes) + "B"});
  ASSERT_EQ(little.code, 0) << little.err;
  EXPECT_EQ(Field("weights_sha256"), weights);
}

TEST_F(Training, WithEnduranceOfTheDiskForSomeSteps_SavesBeforeItIsSpentAndGoesOnWithMore) {
  const std::string disk = folder_ / "disk";
  const std::string save = folder_ / "checkpoints";
  std::filesystem::create_directory(disk);
  ASSERT_EQ(Run({"--optimizer-state", "host"}).code, 0);
  const std::string weights = Field("weights_sha256");
  const std::vector<std::string> on_disk = {
      "--optimizer-state", "disk", "--state-disk", disk, "--save", save};
  std::vector<std::string> bounded = on_disk;
  // The first values write all state once, and each step again: 10 bytes per parameter.
  const auto bytes = static_cast<uint64_t>(50 * Number("parameters"));
  bounded.insert(bounded.end(), {"--state-disk-endurance", std::to_string(bytes) + "B"});
  const CommandResult spent = Run(bounded);
  EXPECT_EQ(spent.code, 7) << spent.err;
  EXPECT_THAT(spent.err, HasSubstr("more to disk than --state-disk-endurance"));
  EXPECT_THAT(spent.err, HasSubstr("saved in"));
  EXPECT_EQ(Field("ended_by"), "\"endurance\"");
  std::vector<std::string> more = on_disk;
  more.emplace_back("--resume");
  const CommandResult result = Run(more);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Field("weights_sha256"), weights);
}

TEST_F(Training, WithoutEnduranceForRestarts_LeavesNoFilesOfState) {
  const std::string disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  const CommandResult result =
      Run({"--optimizer-state", "disk", "--state-disk", disk, "--state-disk-endurance", "1MB",
           "--restarts", "2", "--ranks", "2"});
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(disk));
}

TEST_F(Training, WithAFolderForStateThatIsNotThere_ExitsWithFour) {
  const CommandResult result = Run({"--state-disk", folder_ / "missing"});
  EXPECT_EQ(result.code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("there is no such folder"));
}

TEST_F(Training, InADeviceThatIsTooSmall_ExitsWithSevenAndTheNumbers) {
  for (const char* ranks : {"1", "2"}) {
    const CommandResult result = Run({"--device-memory", "64KiB", "--ranks", ranks});
    EXPECT_EQ(result.code, 7) << result.err;
    EXPECT_THAT(result.err, testing::ContainsRegex("[0-9]"));
    EXPECT_EQ(Report(), "");
  }
}

std::vector<std::string> RandomShape(std::mt19937* random) {
  const auto pick = [&](const std::vector<std::string>& values) {
    return values[(*random)() % values.size()];
  };
  std::vector<std::string> words = {
      "--model",   pick({"gpt2-tiny", "llama-tiny", "mixtral-tiny", "llama-3m"}),
      "--dtype",   pick({"bf16", "fp32"}),
      "--threads", pick({"1", "2", "4"}),
      "--batch",   pick({"2", "4", "8"}),
      "--context", pick({"16", "48", "64"}),
      "--layers",  pick({"2", "4", "5"})};
  if (pick({"", "larger"}) == "larger") words.insert(words.end(), {"--vocabulary", "5000"});
  if (pick({"", "sums"}) == "sums") words.insert(words.end(), {"--accumulate", "2"});
  const std::string mesh = pick({"", "", "data=2,zero=3", "data=2,zero=1", "pipeline=2"});
  const std::string placement = pick({"auto", "auto", "device"});
  if (!mesh.empty()) words.insert(words.end(), {"--parallel", mesh});
  if (placement == "device") words.insert(words.end(), {"--placement", placement});
  return words;
}

// The error also gives the memory of the ways that keep less on the device. Each number trains as
// printed.
TEST_F(Training, ThatKeepsActivationsWithoutRoom_IsToldWhatTheOtherWaysTake) {
  const std::vector<std::string> run = {"--batch", "16", "--layers", "6", "--threads", "1"};
  const auto with = [&](const std::string& how, const std::string& memory) {
    std::vector<std::string> words = run;
    words.insert(words.end(), {"--activations", how, "--device-memory", memory, "--steps", "2"});
    return Run(words);
  };
  const CommandResult refused = with("keep", "64KiB");
  EXPECT_EQ(refused.code, 7) << refused.err;
  for (const char* how : {"offload", "recompute"}) {
    std::smatch said;
    ASSERT_TRUE(std::regex_search(
        refused.err, said,
        std::regex(std::string("with --activations ") + how + " it takes ([^;]+);")))
        << refused.err;
    const CommandResult trained = with(how, said[1]);
    EXPECT_EQ(trained.code, 0) << said[1] << ": " << trained.err;
    EXPECT_EQ(with("keep", said[1]).code, 7) << said[1];
  }
  EXPECT_THAT(with("recompute", "64KiB").err, testing::Not(HasSubstr("with --activations")));
}

// The error has one number. It is accepted as printed, and trains.
TEST_F(Training, InADeviceThatIsTooSmall_NamesASizeThatTrains) {
  const std::vector<std::vector<std::string>> shapes = {
      {},
      {"--batch", "16"},
      {"--dtype", "fp32"},
      {"--accumulate", "2"},
      {"--ranks", "2"},
      {"--model", "llama-tiny"},
      {"--model", "mixtral-tiny"},
      {"--placement", "device"},
      {"--optimizer-state", "device"},
      {"--optimizer-state", "streamed"},
      {"--activations", "keep"},
      {"--activations", "keep", "--dtype", "fp32", "--batch", "16", "--layers", "6"},
      {"--activations", "offload", "--batch", "16", "--layers", "6"},
      {"--parallel", "data=2,zero=1"},
      {"--parallel", "tensor=1d:2"}};
  for (std::vector<std::string> shape : shapes) {
    shape.insert(shape.end(), {"--threads", "1"});
    TrainWithTheSizeNamed(shape);
  }
  if (!LongTests()) return;
  constexpr uint32_t kSeed = 29;
  constexpr int kShapes = 100;
  std::mt19937 random(kSeed);
  for (int i = 0; i < kShapes; ++i) TrainWithTheSizeNamed(RandomShape(&random));
}

TEST_F(Training, WithFlagsThatConcernOtherJobs_SaysThatItsOwnDaemonHasNone) {
  const CommandResult both = Run({"--steps", "1", "--priority", "5", "--queue-timeout", "3"});
  EXPECT_EQ(both.code, 0);
  EXPECT_THAT(both.err, testing::HasSubstr("geminid-train: --priority and --queue-timeout do "
                                           "nothing: this run has started a daemon of its own"));
  EXPECT_THAT(Run({"--steps", "1"}).err, testing::Not(testing::HasSubstr("nothing")));
}

TEST_F(Training, PrecisionOfNorms_MattersBesideBf16WeightsAlone) {
  ASSERT_EQ(Run({"--dtype", "fp32"}).code, 0);
  const std::string fp32 = Field("weights_sha256");
  EXPECT_EQ(Field("norm_dtype"), "\"fp32\"");
  ASSERT_EQ(Run({"--dtype", "fp32", "--norm-precision", "as-weights"}).code, 0);
  EXPECT_EQ(Field("weights_sha256"), fp32);
  ASSERT_EQ(Run({}).code, 0);
  const std::string mixed = Field("weights_sha256");
  const double loss = LastLoss();
  EXPECT_EQ(Field("norm_dtype"), "\"fp32\"");
  ASSERT_EQ(Run({"--norm-precision", "as-weights"}).code, 0);
  EXPECT_EQ(Field("norm_dtype"), "\"bf16\"");
  EXPECT_NE(Field("weights_sha256"), mixed);
  EXPECT_NEAR(LastLoss(), loss, 0.02 * loss);
}

TEST_F(Training, LlamaInFp32WithAccumulation_Works) {
  const CommandResult result = Run({"--model", "llama-tiny", "--dtype", "fp32", "--accumulate", "2",
                                    "--schedule", "cosine", "--warmup-steps", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Field("dtype"), "\"fp32\"");
  EXPECT_EQ(Field("tokens_per_step"), "512");
}

}  // namespace
}  // namespace geminid::trainer
