// Held-out data, as a user asks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

std::string Words(int count) {
  std::string text;
  for (int i = 0; text.size() < static_cast<size_t>(count); ++i) {
    text += "word " + std::to_string(i * i % 97) + ", ";
  }
  return text.substr(0, static_cast<size_t>(count));
}

class ValidationOfRuns : public testing::Test {
 protected:
  nlohmann::json Run(const std::string& text, const std::vector<std::string>& more,
                     const std::string& data = "--text") {
    const std::string report = folder_ / "report.json";
    std::vector<std::string> arguments = {
        data,       text,   "--model", "gpt2-tiny", "--steps",        "6", "--lr",       "3e-3",
        "--report", report, "--ranks", "2",         "--warmup-steps", "2", "--progress", "lines"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = RunTrainer(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    said_ = result.err;
    return nlohmann::json::parse(std::ifstream(report));
  }
  CommandResult Refused(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--text", text_, "--model", "gpt2-tiny"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTrainer(arguments);
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", Words(4000));
  std::string said_;
};

TEST_F(ValidationOfRuns, Measured_ChangesNoBitOfTraining) {
  const auto measured = Run(text_, {"--validation", "0.25", "--validation-every", "2"});
  const auto cut = Run(folder_.Write("cut", Words(3000)), {});
  EXPECT_EQ(measured["weights_sha256"], cut["weights_sha256"]);
  EXPECT_EQ(measured["loss_hex"], cut["loss_hex"]);
  ASSERT_EQ(measured["validation"].size(), 3u);
  EXPECT_EQ(cut["validation"].size(), 0u);
}

TEST_F(ValidationOfRuns, InSmallArenasAndOnAnyRanks_GivesTheSameLosses) {
  const auto ample = Run(text_, {"--validation", "0.25", "--validation-every", "3"});
  EXPECT_THAT(said_, HasSubstr("validation "));
  const auto tight = Run(text_, {"--validation", "0.25", "--validation-every", "3",
                                 "--device-memory", "1MiB", "--placement", "cpu"});
  EXPECT_EQ(tight["weights_sha256"], ample["weights_sha256"]);
  EXPECT_EQ(tight["validation"], ample["validation"]);
  const auto alone =
      Run(text_, {"--validation", "0.25", "--validation-every", "3", "--ranks", "1"});
  ASSERT_EQ(alone["validation"].size(), 2u);
  EXPECT_EQ(alone["validation"][1]["step"], 6);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(alone["validation"][i]["loss"].get<double>(),
                ample["validation"][i]["loss"].get<double>(), 0.02);
  }
  EXPECT_LT(ample["validation"][1]["loss"].get<double>(),
            ample["validation"][0]["loss"].get<double>());
}

TEST_F(ValidationOfRuns, OnShards_AreThoseOnTheSameTokensAsText) {
  const auto text = Run(text_, {"--validation", "0.25"});
  const std::string bytes = Words(4000);
  std::string tokens;
  for (const char byte : bytes) tokens += {byte, '\0'};  // as uint16
  folder_.Write("shards/a.bin", tokens.substr(0, 3000));
  folder_.Write("shards/b.bin", tokens.substr(3000));
  const auto shards = Run(folder_ / "shards", {"--validation", "0.25"}, "--shards");
  EXPECT_EQ(shards["weights_sha256"], text["weights_sha256"]);
  EXPECT_EQ(shards["validation"], text["validation"]);
}

TEST_F(ValidationOfRuns, OnATokenBeyondTheVocabulary_EndWithItsPlace) {
  const std::string bad = folder_.Write("bad.bin", std::string(2000, '\1'));
  const CommandResult result =
      RunTrainer({"--shards", bad, "--model", "gpt2-tiny", "--vocabulary", "200"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("bad.bin' has the token 257 at byte "));
  EXPECT_EQ(Refused({"--shards", bad}).code, 2);
  EXPECT_EQ(Refused({"--vocabulary", "100"}).code, 2);
}

TEST_F(ValidationOfRuns, ThatCannotBe_AreRefusedByFlag) {
  const CommandResult all = Refused({"--validation", "1"});
  EXPECT_EQ(all.code, 2);
  EXPECT_THAT(all.err, HasSubstr("leaves training 0 bytes"));
  const CommandResult little = Refused({"--validation", "0.001"});
  EXPECT_EQ(little.code, 2);
  EXPECT_THAT(little.err, HasSubstr("leaves validation 4 bytes"));
  EXPECT_EQ(Refused({"--validation", "-0.1"}).code, 2);
  const CommandResult every = Refused({"--validation-every", "3"});
  EXPECT_EQ(every.code, 2);
  EXPECT_THAT(every.err, HasSubstr("--validation-every: it does nothing without --validation"));
  EXPECT_EQ(Refused({"--validation", "0.2", "--validation-every", "0"}).code, 2);
}

}  // namespace
}  // namespace geminid::trainer
