#include "tools/geminictl/commands/wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::ListJobsResponse Jobs(const std::vector<std::pair<std::string, std::string>>& tenants) {
  v1::ListJobsResponse jobs;
  for (const auto& [tenant, state] : tenants) {
    v1::JobInfo* const job = jobs.add_jobs();
    job->set_job("demo");
    job->set_tenant(tenant);
    job->set_state(state);
  }
  jobs.add_jobs()->set_job("other");
  return jobs;
}

TEST(LeftToWaitFor, JobInTheState_IsNothing) {
  const auto jobs = Jobs({{"uid:1", "queued"}, {"uid:2", "running"}});
  EXPECT_THAT(LeftToWaitFor(jobs, {.job = "demo", .state = "running"}), IsEmpty());
  EXPECT_THAT(LeftToWaitFor(jobs, {.job = "demo", .tenant = "uid:1", .state = "running"}),
              HasSubstr("it is queued"));
}

TEST(LeftToWaitFor, NoJobOfThatName_IsGoneAndNothingElse) {
  EXPECT_THAT(LeftToWaitFor(Jobs({}), {.job = "demo", .state = kGone}), IsEmpty());
  EXPECT_THAT(LeftToWaitFor(Jobs({}), {.job = "demo", .state = "running"}),
              HasSubstr("there is no job of that name"));
  EXPECT_THAT(LeftToWaitFor(Jobs({{"uid:1", "kept"}}), {.job = "demo", .state = kGone}),
              HasSubstr("it is kept"));
}

TEST(LeftToWaitFor, ReasonOfAQueuedJob_IsSaid) {
  v1::ListJobsResponse jobs = Jobs({{"uid:1", "queued"}});
  jobs.mutable_jobs(0)->set_reason("4 GiB of device 0");
  EXPECT_EQ(LeftToWaitFor(jobs, {.job = "demo", .state = "running"}),
            "job demo to be running; it is queued (4 GiB of device 0)");
}

TEST(CheckJobState, Words_AreThoseOfJobs) {
  EXPECT_TRUE(CheckJobState("queued").ok());
  EXPECT_TRUE(CheckJobState("gone").ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckJobState("done")));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckJobState("")));
}

}  // namespace
}  // namespace geminid::ctl
