// Runs on one text. A suite compares their losses, norms and weights.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_COMPARED_RUNS_H_
#define GEMINID_TESTS_TOOLS_TRAINER_COMPARED_RUNS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/base/long_tests.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/rank_threads.h"

namespace geminid::trainer {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline constexpr double kRounding = 2e-5;  // in fp32, over four steps

// The models or other flags for the case of this number: one of them in turn, or all in long tests.
inline std::vector<Words> EachInTurn(size_t number, const std::vector<Words>& flags) {
  if (LongTests()) return flags;
  return {flags[number % flags.size()]};
}

class ComparedRuns : public testing::Test {
 public:
  static void SetUpTestSuite() { ranks_ = std::make_unique<RankThreads>(); }
  static void TearDownTestSuite() {
    ranks_.reset();
    made_.clear();
  }

 protected:
  // `flags` are common to all runs of the suite.
  explicit ComparedRuns(Words flags) : flags_(std::move(flags)) {}

  virtual Words Data() const { return {"--text", text_}; }
  Words Arguments(const Words& more) const {
    return Data() + Words{"--steps",        "4", "--batch",   "4", "--lr",     "3e-3",
                          "--warmup-steps", "2", "--threads", "1", "--report", report_} +
           flags_ + more;
  }

  absl::Status Try(const Words& more) const { return ranks_->Train(Arguments(more)); }
  // The report; null, and the test fails, where the run does.
  nlohmann::json Run(const Words& more) const {
    const absl::Status trained = Try(more);
    EXPECT_TRUE(trained.ok()) << testing::PrintToString(more) << trained;
    return trained.ok() ? Report() : nlohmann::json();
  }
  nlohmann::json Report() const { return nlohmann::json::parse(std::ifstream(report_)); }

  // The same for flags that neither read nor write files. The suite runs such flags once, even if
  // several tests compare with them.
  nlohmann::json RunOnce(const Words& more) const {
    const auto made = made_.find(more);
    if (made != made_.end()) return made->second;
    return made_.emplace(more, Run(more)).first->second;
  }

  static void ExpectSameBits(const nlohmann::json& got, const nlohmann::json& expected) {
    ASSERT_FALSE(got.is_null() || expected.is_null());
    EXPECT_EQ(got["loss_hex"], expected["loss_hex"]);
    EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
    EXPECT_EQ(got["parameters"], expected["parameters"]);
    ExpectNear(got, expected, 1e-9);
  }

  // Compares losses and norms. Each step's depend on all weights after the last step, and clipping
  // depends on the norm. Compares validation losses as well, if there are any.
  static void ExpectNear(const nlohmann::json& got, const nlohmann::json& expected,
                         double tolerance = kRounding) {
    ASSERT_FALSE(got.is_null() || expected.is_null());
    for (const char* key : {"loss", "gradient_norm"}) {
      ASSERT_EQ(got[key].size(), expected[key].size());
      for (size_t i = 0; i < expected[key].size(); ++i) {
        const double value = expected[key][i];
        EXPECT_NEAR(got[key][i].get<double>(), value, tolerance * std::abs(value)) << key << i;
      }
    }
    ASSERT_EQ(got["validation"].size(), expected["validation"].size());
    for (size_t i = 0; i < expected["validation"].size(); ++i) {
      const double loss = expected["validation"][i]["loss"];
      EXPECT_NEAR(got["validation"][i]["loss"].get<double>(), loss, tolerance * loss);
    }
    EXPECT_EQ(got["parameters"], expected["parameters"]);
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    return text;
  }());
  const std::string run_ = folder_ / "run";
  const std::string report_ = folder_ / "report.json";

 private:
  const Words flags_;
  inline static std::unique_ptr<RankThreads> ranks_;
  inline static std::map<Words, nlohmann::json> made_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_COMPARED_RUNS_H_
