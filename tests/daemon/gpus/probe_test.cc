#include "daemon/gpus/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "daemon/gpus/agent_process.h"

namespace geminid::gpus {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::vector<agent::GpuFacts>> FindWith(const char* fault, absl::Duration patience) {
  ::setenv("GEMINID_PUPPET", fault, 1);
  return FindGpus(GEMINID_PUPPET_AGENT, patience);
}

TEST(FindGpus, Probe_TellsAllAndEnds) {
  const auto gpus = FindWith("", absl::Minutes(1));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 1u);
  EXPECT_STREQ(gpus->front().name, "Puppet GPU");
}

TEST(FindGpus, WithoutADriver_SaysWhatTheProbeSaid) {
  EXPECT_EQ(FindWith("refuse", absl::Minutes(1)).status(),
            absl::UnavailableError("no driver here"));
}

TEST(FindGpus, ProbeThatHangs_IsGivenUpAndEnded) {
  const absl::Status status = FindWith("hang_list", absl::Milliseconds(50)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

TEST(FindGpus, ProbeThatBreaksTheProtocol_IsAnError) {
  EXPECT_TRUE(absl::IsInvalidArgument(FindWith("garbage", absl::Minutes(1)).status()));
}

TEST(FindGpus, WithoutTheProgram_SaysWhereItWasLookedFor) {
  const absl::Status status = FindGpus("/nowhere/geminid-agent", absl::Minutes(1)).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/nowhere/geminid-agent; install it beside geminid"));
}

TEST(AgentBesideThisProgram, Path_IsInTheFolderOfThisProgram) {
  EXPECT_THAT(AgentBesideThisProgram(), ::testing::EndsWith("/geminid-agent"));
}

}  // namespace
}  // namespace geminid::gpus
