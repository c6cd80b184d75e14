// State on disk as far as host memory does not hold it: what a run takes is what was forecast.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/executed_disk.h"
#include "training/forecast/problem.h"

namespace geminid::trainer {
namespace {

class StateOnDisk : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(disk_); }

  nlohmann::json Report(const std::vector<std::string>& more) const {
    const std::string path = folder_ / "report.json";
    std::vector<std::string> words = {"--text", text_, "--batch", "1", "--report", path};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = RunTrainer(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(std::ifstream(path), nullptr, /*allow_exceptions=*/false);
  }
  std::vector<std::string> InHostMemory(uint64_t bytes) const {
    return {"--host-memory", std::to_string(bytes) + "B", "--state-disk", disk_};
  }

  const base::TemporaryFolder folder_;
  const std::string disk_ = folder_ / "disk";
  const std::string text_ = folder_.Write("text", std::string(4000, 'a'));
};

// Of host memory as the daemon's ledger has it, and of files as `geminictl ls sessions` shows them.
TEST_F(StateOnDisk, BytesOfEachTier_AreThoseThatWereForecast) {
  using Limits = std::vector<double>;  // bytes for each parameter
  for (const auto& [model, limits] : {std::pair<std::string, Limits>{"gpt2-tiny", {12.5, 15, 30}},
                                      {"gpt2-3m", {7, 9.5, 12, 30}}}) {
    const forecast::Model& shape = *forecast::TrainersOwn(model);
    const auto parameters = static_cast<double>(forecast::CountParameters(shape));
    for (const double bytes_per_parameter : limits) {
      SCOPED_TRACE(testing::Message() << model << ", " << bytes_per_parameter);
      const auto host_bytes = static_cast<uint64_t>(bytes_per_parameter * parameters);
      forecast::Job job;
      job.optimizer = *forecast::FindOptimizer("adamw");
      const auto expected = forecast::ExecutedStateOf(shape, job, host_bytes);
      ASSERT_TRUE(expected.ok()) << expected.status();
      std::vector<std::string> words = InHostMemory(host_bytes);
      words.insert(words.end(), {"--model", model, "--steps", "1"});
      const nlohmann::json report = Report(words);
      ASSERT_TRUE(report.is_object());
      const auto host = static_cast<double>(expected->host.peak);
      const auto disk = static_cast<double>(expected->file_bytes);
      EXPECT_NEAR(report["host_bytes"].get<double>(), host, 0.01 * host);
      EXPECT_NEAR(report["state_disk_bytes"].get<double>(), disk, 0.01 * disk);
    }
  }
}

// A checkpoint does not say where state was.
TEST_F(StateOnDisk, RunOfOneMixture_GoesOnInAnotherWithTheSameBits) {
  const auto weights = [&](const char* name, const std::vector<std::string>& first,
                           const std::vector<std::string>& second) {
    const std::string save = folder_ / name;
    std::string hash;
    for (const auto& [steps, memory] : {std::pair{"3", first}, std::pair{"5", second}}) {
      std::vector<std::string> words = {"--model", "gpt2-3m", "--steps", steps, "--save", save};
      if (!hash.empty()) words.emplace_back("--resume");
      words.insert(words.end(), memory.begin(), memory.end());
      const nlohmann::json report = Report(words);
      if (!report.is_object()) return std::string("no report");
      hash = report["weights_sha256"].get<std::string>();
    }
    return hash;
  };
  const std::string expected =
      weights("host", {"--optimizer-state", "host"}, {"--optimizer-state", "host"});
  const auto parameters =
      static_cast<double>(forecast::CountParameters(*forecast::TrainersOwn("gpt2-3m")));
  const auto in = [&](double bytes) {
    return InHostMemory(static_cast<uint64_t>(bytes * parameters));
  };
  EXPECT_EQ(weights("more", in(9), in(12)), expected);
  EXPECT_EQ(weights("less", in(12), in(7)), expected);
}

}  // namespace
}  // namespace geminid::trainer
