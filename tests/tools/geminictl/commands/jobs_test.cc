#include "tools/geminictl/commands/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::ctl {
namespace {

v1::ListJobsResponse OneJob(const char* state, bool held) {
  v1::ListJobsResponse jobs;
  v1::JobInfo* const job = jobs.add_jobs();
  job->set_tenant("uid:1");
  job->set_job("demo");
  job->set_state(state);
  job->set_held(held);
  return jobs;
}

v1::ScaleRequest Request(const char* tenant) {
  v1::ScaleRequest scale;
  scale.set_tenant(tenant);
  scale.set_job("demo");
  return scale;
}

TEST(WhyScaleWaits, OfAnEvictedJob_SaysWhenItTakesTheNumber) {
  EXPECT_EQ(WhyScaleWaits(OneJob("preempted", true), Request("uid:1")),
            "evicted, and takes the request when it is back; 'geminictl evict --undo demo' lets it "
            "go on");
}

TEST(WhyScaleWaits, OfAJobThatWaitsForTheDevice_NamesItsState) {
  for (const char* const state : {"queued", "gathering", "preempted"}) {
    EXPECT_EQ(WhyScaleWaits(OneJob(state, false), Request("uid:1")),
              std::string(state) + ", and takes the request when it runs again");
  }
}

TEST(WhyScaleWaits, OfAJobThatRunsOrIsAnothers_IsEmpty) {
  EXPECT_EQ(WhyScaleWaits(OneJob("running", false), Request("uid:1")), "");
  EXPECT_EQ(WhyScaleWaits(OneJob("preempted", true), Request("uid:2")), "");
}

}  // namespace
}  // namespace geminid::ctl
