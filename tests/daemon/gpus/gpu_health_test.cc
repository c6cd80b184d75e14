#include "daemon/gpus/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::gpus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

agent::Faults Known(uint32_t known = agent::kAllKnown) {
  agent::Faults faults = {};
  faults.known = known;
  return faults;
}

Verdict WithXid(uint32_t xid) {
  XidCounts xids;
  xids.Add(xid);
  return Judge(Known(), xids);
}

TEST(GpuHealth, NothingSaid_IsUnknown) {
  EXPECT_EQ(Judge({}, {}).condition, Condition::kUnknown);
  EXPECT_EQ(Judge(Known(agent::kXids), {}).condition, Condition::kHealthy);
  EXPECT_THAT(Judge(Known(), {}).reasons, IsEmpty());
}

TEST(GpuHealth, Xids_AreWhatTheirNumberMeans) {
  for (const uint32_t xid : {48, 64, 74, 79, 95, 119, 120, 140}) {
    EXPECT_EQ(WithXid(xid).condition, Condition::kUnhealthy) << xid;
  }
  for (const uint32_t xid : {63, 94}) {
    EXPECT_EQ(WithXid(xid).condition, Condition::kDegraded) << xid;
  }
  for (const uint32_t xid : {13, 31, 43, 45, 0, 9999}) {
    EXPECT_EQ(WithXid(xid).condition, Condition::kHealthy) << xid;
  }
  EXPECT_THAT(WithXid(79).reasons, ElementsAre("Xid 79 (the GPU has fallen off the bus)"));
}

TEST(GpuHealth, Memory_IsUnhealthyWhereARowCouldNotBeReplaced) {
  agent::Faults faults = Known();
  faults.row_remap_failed = 1;
  EXPECT_EQ(Judge(faults, {}).condition, Condition::kUnhealthy);
  for (const auto member :
       {&agent::Faults::row_remap_pending, &agent::Faults::retired_pages_pending}) {
    faults = Known();
    faults.*member = 1;
    EXPECT_EQ(Judge(faults, {}).condition, Condition::kDegraded);
  }
  faults = Known();
  faults.volatile_errors = 3;
  EXPECT_EQ(Judge(faults, {}).condition, Condition::kDegraded);
  EXPECT_THAT(Judge(faults, {}).reasons, ElementsAre(HasSubstr("3 errors of memory")));
  faults = Known();
  faults.aggregate_errors = 3;  // from an earlier time
  EXPECT_EQ(Judge(faults, {}).condition, Condition::kHealthy);
}

TEST(GpuHealth, Reasons_AreTheWorstFirst) {
  XidCounts xids;
  for (const uint32_t xid : {94, 63, 95, 95}) xids.Add(xid);
  agent::Faults faults = Known();
  faults.row_remap_pending = 1;
  const Verdict verdict = Judge(faults, xids);
  EXPECT_EQ(verdict.condition, Condition::kUnhealthy);
  EXPECT_THAT(verdict.reasons,
              ElementsAre("Xid 95 (memory error that was not contained), 2 times",
                          HasSubstr("Xid 63"), HasSubstr("Xid 94"), HasSubstr("rows of memory")));
}

TEST(GpuHealth, XidsThatWereLookedInto_CountAndMeanNothingAnyMore) {
  XidCounts xids;
  xids.Add(79);
  xids.Settle();
  EXPECT_EQ(Judge(Known(), xids).condition, Condition::kHealthy);
  xids.Add(79);
  EXPECT_EQ(xids.counts().at(79), 2u);
  EXPECT_THAT(Judge(Known(), xids).reasons, ElementsAre("Xid 79 (the GPU has fallen off the bus)"));
}

TEST(XidCounts, ManyKinds_LeaveRoomForThoseThatMeanSomething) {
  XidCounts xids;
  for (uint32_t xid = 1000; xid < 2000; ++xid) xids.Add(xid);
  EXPECT_EQ(Judge(Known(), xids).condition, Condition::kHealthy);
  for (const uint32_t xid : {48, 63, 64, 74, 79, 94, 95, 119, 120, 140}) xids.Add(xid);
  EXPECT_EQ(xids.counts().size(), XidCounts::kMostKinds);
  EXPECT_EQ(Judge(Known(), xids).condition, Condition::kUnhealthy);
}

}  // namespace
}  // namespace geminid::gpus
