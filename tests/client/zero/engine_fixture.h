// A daemon in this process and a synthetic run against it.
#ifndef GEMINID_TESTS_CLIENT_ZERO_ENGINE_FIXTURE_H_
#define GEMINID_TESTS_CLIENT_ZERO_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <bit>
#include <utility>
#include <vector>

#include "tests/client/zero/synthetic_training.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid::zero {

inline constexpr uint64_t kTightArena = 320 << 10;
inline constexpr uint64_t kAmpleArena = 8 << 20;

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    run_.socket = env_.socket();
    run_.options.clip_norm = 0;
    run_.options.chunk_elements = 16384;
  }

  void ExpectSameBits(const std::vector<std::vector<float>>& actual,
                      const std::vector<std::vector<float>>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t p = 0; p < actual.size(); ++p) {
      ASSERT_EQ(actual[p].size(), expected[p].size());
      uint64_t different = 0;
      for (size_t i = 0; i < actual[p].size(); ++i) {
        different +=
            std::bit_cast<uint32_t>(actual[p][i]) != std::bit_cast<uint32_t>(expected[p][i]);
      }
      EXPECT_EQ(different, 0u) << "of " << actual[p].size() << " in "
                               << run_.model.parameters[p].name;
    }
  }

  SyntheticResult MustTrain() {
    absl::StatusOr<SyntheticResult> result = Train(run_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : SyntheticResult{};
  }

  geminid::testing::DaemonEnv env_;
  SyntheticRun run_;
};

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_ENGINE_FIXTURE_H_
