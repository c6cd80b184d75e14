#include "tools/gpu-verify/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "gpu/driver_api.h"
#include "tools/gpu-verify/run.h"

namespace geminid::gpu_verify {
namespace {

using testing::HasSubstr;

const std::vector<Probe> kProbes = {{"A1", "first", 1, 1, nullptr},
                                    {"A2", "second", 1, 1, nullptr},
                                    {"A3", "third", 1, 1, nullptr}};

std::string ErrorOf(const std::vector<std::string>& arguments) {
  Options options;
  std::string error;
  return ParseOptions(arguments, kProbes, &options, &error) ? "" : error;
}

Options Parsed(const std::vector<std::string>& arguments) {
  Options options;
  std::string error;
  EXPECT_TRUE(ParseOptions(arguments, kProbes, &options, &error)) << error;
  return options;
}

TEST(Options, NoArguments_SelectEverythingWithinEightMinutes) {
  const Options options = Parsed({});
  EXPECT_EQ(options.probes.size(), 3u);
  EXPECT_FALSE(options.quick);
  EXPECT_EQ(options.device, 0);
  EXPECT_GT(options.limit_seconds, 0);
  EXPECT_LT(options.limit_seconds + 10, 8 * 60);
}

TEST(Options, Quick_EndsWithinTwoMinutes) {
  const Options options = Parsed({"--quick"});
  EXPECT_TRUE(options.quick);
  EXPECT_LT(options.limit_seconds + 10, 2 * 60);
}

TEST(Options, Ids_SelectInTheOrderOfTheCatalogue) {
  const Options options = Parsed({"A3", "A1"});
  ASSERT_EQ(options.probes.size(), 2u);
  EXPECT_STREQ(options.probes[0].id, "A1");
  EXPECT_STREQ(options.probes[1].id, "A3");
}

TEST(Options, Values_AreTaken) {
  const Options options = Parsed({"--device", "3", "--json", "f.json", "--limit", "77", "--list"});
  EXPECT_EQ(options.device, 3);
  EXPECT_EQ(options.json_path, "f.json");
  EXPECT_EQ(options.limit_seconds, 77);
  EXPECT_TRUE(options.list);
}

TEST(Options, WhatIsNotUnderstood_IsNamed) {
  EXPECT_THAT(ErrorOf({"--fast"}), HasSubstr("--fast"));
  EXPECT_THAT(ErrorOf({"A4"}), HasSubstr("A4"));
  EXPECT_THAT(ErrorOf({"--json"}), HasSubstr("--json needs"));
  EXPECT_THAT(ErrorOf({"--json", ""}), HasSubstr("--json needs"));
  for (const char* bad : {"", "-1", "64", "1x", "1.5", "99999999999999999999"}) {
    EXPECT_THAT(ErrorOf({"--device", bad}), HasSubstr("--device")) << bad;
  }
  for (const char* bad : {"0", "-3", "nan", "86401"}) {
    EXPECT_THAT(ErrorOf({"--limit", bad}), HasSubstr("--limit")) << bad;
  }
}

int StatusOf(const std::string& arguments) {
  const int status =
      std::system((std::string(GEMINID_GPU_VERIFY) + " " + arguments + " >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Program, HelpAndList_EndWell) {
  EXPECT_EQ(StatusOf("--help"), 0);
  EXPECT_EQ(StatusOf("--list"), 0);
}

TEST(Program, UnknownOption_IsAUsageError) {
  EXPECT_EQ(StatusOf("--unknown"), 2);
  EXPECT_EQ(StatusOf("G999"), 2);
}

TEST(Program, NoDriver_IsUnavailable) {
  gpu::DriverApi driver;
  std::string error;
  if (gpu::LoadDriverApi(&driver, &error)) GTEST_SKIP() << "this machine has a CUDA driver";
  EXPECT_THAT(error, HasSubstr("libcuda.so.1"));
  EXPECT_EQ(StatusOf("G1"), base::kExitUnavailable);
}

}  // namespace
}  // namespace geminid::gpu_verify
