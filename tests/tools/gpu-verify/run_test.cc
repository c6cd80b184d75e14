#include "tools/gpu-verify/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/exit_code.h"
#include "tests/tools/gpu-verify/fake_driver.h"
#include "tools/gpu-verify/process.h"

namespace geminid::gpu_verify {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

Outcome Good(const Context&) { return Pass("well"); }
Outcome Bad(const Context&) { return Fail("ill", "a reason"); }
Outcome Absent(const Context&) { return NotApplicable("no such thing"); }
Outcome Crashing(const Context&) {
  raise(SIGKILL);
  return Pass("");
}
Outcome Hanging(const Context&) {
  while (true) pause();
}

// Returns the seconds for which the probe may repeat, rounded down to tens.
Outcome SaysItsTime(const Context& context) {
  return Pass(std::to_string(static_cast<int>(context.soft_deadline - Now()) / 10 * 10) + " s");
}

class RunProbesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "run_test_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    options_.limit_seconds = 60;
    options_.json_path = folder_ + "/results.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  int RunThese(std::vector<Probe> probes) {
    options_.probes = std::move(probes);
    return RunProbes(FakeDriver(), options_, FullEffort(), Machine{}, out_, log_);
  }
  std::string Json() const {
    std::ifstream file(options_.json_path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string folder_;
  Options options_;
  std::ostringstream out_;
  std::ostringstream log_;
};

TEST_F(RunProbesTest, NothingFails_EndsWithZero) {
  EXPECT_EQ(RunThese({{"A", "first", 1, 1, Good}, {"B", "second", 1, 1, Absent}}), 0);
  EXPECT_EQ(out_.str(), "A first: well, pass\nB second: not applicable (no such thing)\n");
  EXPECT_THAT(log_.str(), HasSubstr("[1/2] A first"));
}

TEST_F(RunProbesTest, OneFails_EndsAsUnhealthyAndGoesOn) {
  EXPECT_EQ(RunThese({{"A", "first", 1, 1, Bad}, {"B", "second", 1, 1, Good}}),
            base::kExitUnhealthy);
  EXPECT_EQ(out_.str(), "A first: ill, fail (a reason)\nB second: well, pass\n");
}

TEST_F(RunProbesTest, OneCrashes_TheNextStillRuns) {
  EXPECT_EQ(RunThese({{"A", "first", 1, 1, Crashing}, {"B", "second", 1, 1, Good}}),
            base::kExitUnhealthy);
  EXPECT_THAT(out_.str(), HasSubstr("fail (the probe crashed: Killed)\nB second: well, pass\n"));
}

TEST_F(RunProbesTest, OneHangs_TheRunEndsAtItsLimit) {
  options_.limit_seconds = 2;
  EXPECT_EQ(RunThese({{"A", "first", 1, 1, Hanging}, {"B", "second", 1, 1, Good}}),
            base::kExitUnhealthy);
  // The probe's limit is the time that is left when it starts.
  EXPECT_THAT(out_.str(), ContainsRegex("A first: fail \\(no answer within [0-2]\\.[0-9] s\\)"));
  EXPECT_THAT(out_.str(), HasSubstr("B second: fail (not run: the time limit was reached)"));
}

TEST_F(RunProbesTest, TimeTooShortForAll_IsSharedAmongThoseThatAreLeft) {
  const std::vector<Probe> probes = {{"A", "first", 100, 1, SaysItsTime},
                                     {"B", "second", 300, 1, SaysItsTime}};
  options_.limit_seconds = 225;  // 5 of these are a reserve
  EXPECT_EQ(RunThese(probes), 0);
  EXPECT_EQ(out_.str(), "A first: 50 s, pass\nB second: 210 s, pass\n");
  out_.str("");
  options_.limit_seconds = 1000;
  EXPECT_EQ(RunThese(probes), 0);
  EXPECT_EQ(out_.str(), "A first: 90 s, pass\nB second: 290 s, pass\n");
}

TEST_F(RunProbesTest, Json_HoldsEveryProbe) {
  RunThese({{"A", "first", 1, 1, Good}, {"B", "second", 1, 1, Bad}});
  EXPECT_THAT(Json(), HasSubstr("\"id\": \"A\""));
  EXPECT_THAT(Json(), HasSubstr("\"id\": \"B\""));
  EXPECT_FALSE(std::filesystem::exists(options_.json_path + ".tmp"));
}

TEST_F(RunProbesTest, FileThatCannotBeWritten_IsSaidBeforeAnythingRuns) {
  options_.json_path = folder_ + "/missing/results.json";
  EXPECT_EQ(RunThese({{"A", "first", 1, 1, Good}}), base::kExitFailed);
  EXPECT_EQ(out_.str(), "");
  EXPECT_THAT(log_.str(), HasSubstr("cannot write"));
}

TEST(DescribeMachine, WorkingDriver_IsDescribed) {
  const gpu::DriverApi driver = FakeDriver();
  Machine machine;
  std::string error;
  ASSERT_TRUE(DescribeMachine(driver, 0, &machine, &error)) << error;
  EXPECT_EQ(machine.gpu, "Fake GPU");
  EXPECT_EQ(machine.cuda_version, 12040);
  EXPECT_EQ(machine.device_bytes, kFakeDeviceBytes);
  EXPECT_EQ(machine.persistence, "unknown");
  EXPECT_GT(machine.available_host_bytes, 0u);
}

TEST(DescribeMachine, DriverWithoutDevice_IsAnError) {
  const gpu::DriverApi driver = FakeDriver({.init_fails = true});
  Machine machine;
  std::string error;
  EXPECT_FALSE(DescribeMachine(driver, 0, &machine, &error));
  EXPECT_THAT(error, HasSubstr("cuInit: CUDA_ERROR_NO_DEVICE"));
}

TEST(DescribeMachine, DeviceThatIsNotThere_IsAnError) {
  const gpu::DriverApi driver = FakeDriver();
  Machine machine;
  std::string error;
  EXPECT_FALSE(DescribeMachine(driver, 1, &machine, &error));
  EXPECT_THAT(error, HasSubstr("GPU 1"));
}

}  // namespace
}  // namespace geminid::gpu_verify
