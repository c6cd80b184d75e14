// Continues a text, as a user asks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/tensors_in_folder.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

constexpr char kPrompt[] = "line 3 of";

class Generated : public testing::Test {
 protected:
  // Trains a little, so that the likeliest token is not a tie. Returns the checkpoint.
  std::string Train(const std::vector<std::string>& model) {
    const std::string run = folder_ / "run";
    std::vector<std::string> arguments = {"--text",  text_,     "--steps", "60",
                                          "--lr",    "5e-3",    "--save",  run,
                                          "--quiet", "--batch", "8",       "--save-over"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    const CommandResult trained = RunTrainer(arguments);
    EXPECT_EQ(trained.code, 0) << trained.err;
    return run + "/step-000000060";
  }
  static CommandResult Generate(const std::string& folder, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"generate", "--load", folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTrainer(arguments);
  }
  static std::string Text(const std::string& folder, std::vector<std::string> more) {
    more.insert(more.end(), {"--prompt", kPrompt, "--tokens", "24"});
    const CommandResult result = Generate(folder, more);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i % 10) + " of the text. ";
    return text;
  }());
};

TEST_F(Generated, FromLogitsThatAreNotFinite_IsRefused) {
  const std::string model = folder_ / "model";
  ASSERT_EQ(RunTrainer({"--model", "gpt2-tiny", "--text", text_, "--steps", "1", "--export", model,
                        "--export-dtype", "fp32"})
                .code,
            0);
  // Finite values whose squares overflow.
  std::fstream file(model + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  file.seekp(static_cast<std::streamoff>(sizeof(length) + length));
  for (int i = 0; i < 40000; ++i) {
    const float large = 3e38F;
    file.write(reinterpret_cast<const char*>(&large), sizeof(large));
  }
  file.close();
  for (const char* temperature : {"0", "1"}) {
    const CommandResult result =
        Generate(model, {"--prompt", "a", "--tokens", "4", "--temperature", temperature});
    EXPECT_EQ(result.code, 11) << result.err;
    EXPECT_THAT(result.err, HasSubstr("the model's logits for token 2 are not finite"));
  }
}

class GeneratedByFamily : public Generated, public testing::WithParamInterface<const char*> {};

TEST_P(GeneratedByFamily, Greedily_IsWhatAFloat64ModelWrites) {
  const std::string folder = Train({"--model", GetParam()});
  const CommandResult result =
      Generate(folder, {"--prompt", kPrompt, "--tokens", "20", "--dtype", "fp32", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const NamedTensors tensors = TensorsInFolder(folder);
  const ModelConfig config = *FindPreset(GetParam());
  std::vector<int32_t> tokens(kPrompt, kPrompt + sizeof(kPrompt) - 1);
  std::vector<int> expected;
  for (int i = 0; i < 20; ++i) {
    const std::vector<double> logits = ReferenceLogits(config, tensors, tokens).back();
    tokens.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    expected.push_back(tokens.back());
  }
  EXPECT_EQ(nlohmann::json::parse(result.out)["tokens"], nlohmann::json(expected));
}

INSTANTIATE_TEST_SUITE_P(
    Models, GeneratedByFamily, testing::Values("gpt2-tiny", "llama-tiny"), [](const auto& test) {
      return std::string(test.param).substr(0, std::string(test.param).find('-'));
    });

TEST_F(Generated, AtAnEndOfSequenceToken_Stops) {
  const std::string folder = folder_ / "exported";
  const CommandResult trained =
      RunTrainer({"--text", text_, "--model", "gpt2-tiny", "--steps", "60", "--lr", "5e-3",
                  "--export", folder, "--quiet", "--batch", "8"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto tokens = [&] {
    const CommandResult result =
        Generate(folder, {"--prompt", kPrompt, "--tokens", "12", "--json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out)["tokens"].get<std::vector<int>>();
  };
  const std::vector<int> all = tokens();
  ASSERT_EQ(all.size(), 12u);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  EXPECT_TRUE(config["eos_token_id"].is_null());  // no byte ends a text
  config["eos_token_id"] = {300, all[5]};
  std::ofstream(folder + "/config.json") << config;
  const std::vector<int> until(all.begin(), std::find(all.begin(), all.end(), all[5]) + 1);
  EXPECT_EQ(tokens(), until);
}

// Narrower weights may have other likeliest tokens, so the run's own type is used.
TEST_F(Generated, OfARunWithItsOwnTypes_ComputesInThem) {
  const std::string folder = Train({"--model", "gpt2-tiny", "--dtype", "fp32"});
  const auto logits = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--temperature", "1", "--seed", "7"});
    return Text(folder, more);
  };
  EXPECT_EQ(logits({}), logits({"--dtype", "fp32"}));
  const CommandResult said =
      Generate(folder, {"--prompt", kPrompt, "--norm-precision", "as-weights"});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.err, HasSubstr("--norm-precision: it does nothing without --dtype bf16"));
}

TEST_F(Generated, WithWeightsLargerThanTheDevice_IsTheSameText) {
  // Eight layers have 800 KiB of weights in bf16.
  const std::string folder = Train({"--model", "gpt2-tiny", "--layers", "8"});
  const std::string ample = Text(folder, {});
  EXPECT_THAT(ample, testing::StartsWith(kPrompt));
  EXPECT_EQ(ample.size(), sizeof(kPrompt) - 1 + 24 + 1);
  EXPECT_EQ(Text(folder, {"--device-memory", "640KiB"}), ample);
  EXPECT_EQ(Text(folder, {"--device-memory", "640KiB", "--placement", "cpu"}), ample);
  EXPECT_EQ(Text(folder, {"--device-memory", "640KiB", "--ranks", "2"}), ample);
}

TEST_F(Generated, WithRememberedKeysOrWithout_IsTheSameText) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    for (const char* dtype : {"bf16", "fp32"}) {
      const std::string folder = Train({"--model", model, "--dtype", dtype, "--layers", "4"});
      const std::vector<std::string> bold = {"--dtype", dtype,      "--temperature",
                                             "1.5",     "--tokens", "50"};
      const auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), bold.begin(), bold.end());
        return Text(folder, more);
      };
      const std::string again = with({"--kv-cache", "off"});
      EXPECT_EQ(with({"--kv-cache", "on"}), again);
      EXPECT_EQ(with({}), again);
      EXPECT_EQ(with({"--threads", "3", "--ranks", "2"}), again);
      EXPECT_EQ(with({"--kv-cache", "on", "--placement", "cpu"}), again);
    }
  }
}

TEST_F(Generated, WhereKeysDoNotFit_ComputesAgainUnlessToldOtherwise) {
  // Keys and values of 1,000 tokens in eight layers take 2.0 MiB.
  const CommandResult trained =
      RunTrainer({"--text", text_, "--model", "gpt2-tiny", "--layers", "8", "--context", "1024",
                  "--batch", "1", "--steps", "1", "--quiet", "--save", folder_ / "long"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string folder = folder_ / "long/step-000000001";
  const auto generate = [&](const std::string& memory, const std::string& cache) {
    return Generate(folder, {"--prompt", std::string(998, 'x'), "--tokens", "2", "--device-memory",
                             memory, "--kv-cache", cache});
  };
  const CommandResult ample = generate("unlimited", "on");
  ASSERT_EQ(ample.code, 0) << ample.err;
  const CommandResult tight = generate("2560KiB", "auto");
  ASSERT_EQ(tight.code, 0) << tight.err;
  EXPECT_EQ(tight.out, ample.out);
  EXPECT_EQ(generate("2560KiB", "on").code, 7);
}

TEST_F(Generated, BySampling_RepeatsBySeedAndLeavesTheLikeliest) {
  const std::string folder = Train({"--model", "gpt2-tiny"});
  const std::string greedy = Text(folder, {});
  const std::string one = Text(folder, {"--temperature", "1.5", "--seed", "1"});
  EXPECT_EQ(Text(folder, {"--temperature", "1.5", "--seed", "1"}), one);
  EXPECT_NE(Text(folder, {"--temperature", "1.5", "--seed", "2"}), one);
  EXPECT_NE(one, greedy);
  EXPECT_EQ(Text(folder, {"--temperature", "1.5", "--top-k", "1"}), greedy);
}

TEST_F(Generated, BeyondTheContext_GoesOnWithTheLastTokens) {
  const std::string folder = Train({"--model", "gpt2-tiny", "--context", "16"});
  EXPECT_EQ(Text(folder, {}).size(), sizeof(kPrompt) - 1 + 24 + 1);
}

TEST_F(Generated, WithoutWhatIsNeeded_SaysSo) {
  const CommandResult model = RunTrainer({"generate", "--prompt", "x"});
  EXPECT_EQ(model.code, 2);
  EXPECT_THAT(model.err, HasSubstr("give --load"));
  EXPECT_EQ(Generate(folder_ / "none", {"--prompt", "x"}).code, 4);
  const CommandResult empty = Generate(folder_.path(), {"--prompt", "x"});
  EXPECT_EQ(empty.code, 4);
  EXPECT_THAT(empty.err, HasSubstr("has neither config.json nor checkpoints"));
  const std::string folder = Train({"--model", "gpt2-tiny"});
  EXPECT_EQ(Generate(folder, {}).code, 2);
  EXPECT_EQ(Generate(folder, {"--prompt", "x", "--tokens", "0"}).code, 2);
  EXPECT_EQ(Generate(folder, {"--prompt", "x", "--kv-cache", "yes"}).code, 2);
  const CommandResult token = Generate(folder, {"--prompt-tokens", "3,256"});
  EXPECT_EQ(token.code, 2);
  EXPECT_THAT(token.err, HasSubstr("--prompt-tokens"));
  EXPECT_EQ(Generate(folder, {"--prompt-tokens", "3, 25", "--tokens", "1"}).code, 0);
  EXPECT_EQ(Generate(folder, {"--prompt-tokens", ", "}).code, 2);
  EXPECT_EQ(Generate(folder, {"--prompt", "x", "--device-memory", "64KiB"}).code, 7);
}

TEST_F(Generated, StoppedByASignal_EndWithItsCode) {
  const std::string folder = Train({"--model", "gpt2-tiny"});
  TrainerProcess process({"generate", "--load", folder, "--prompt", kPrompt, "--tokens", "1000000"},
                         200);
  ASSERT_TRUE(process.WaitFor("line 3 of")) << process.output();
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 128 + SIGTERM) << process.output();
}

}  // namespace
}  // namespace geminid::trainer
