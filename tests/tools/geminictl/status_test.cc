#include "tools/geminictl/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace geminid::ctl {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;

void AddSession(v1::ListSessionsResponse* to, const std::string& tenant, const std::string& job,
                uint64_t host_bytes) {
  v1::SessionInfo* session = to->add_sessions();
  session->set_tenant(tenant);
  session->set_job(job);
  session->set_state("attached");
  session->set_host_bytes(host_bytes);
  session->set_device_bytes(kMiB);
  session->set_chunks(3);
}

TEST(DescribeStatus, Jobs_AreTotalsOfTheirRanksTheLargestFirst) {
  v1::ListSessionsResponse sessions;
  AddSession(&sessions, "uid:1", "small", kMiB);
  AddSession(&sessions, "uid:1", "large", 4 * kMiB);
  AddSession(&sessions, "uid:1", "large", 4 * kMiB);
  AddSession(&sessions, "uid:2", "large", 2 * kMiB);
  const std::string text = DescribeStatus({}, sessions, {});
  EXPECT_THAT(text, ContainsRegex("uid:1 +large +2 +0 +6 +8.0MiB +2.0MiB\n"
                                  "uid:2 +large +1 +0 +3 +2.0MiB +1.0MiB\n"
                                  "uid:1 +small +1 +0 +3 +1.0MiB +1.0MiB\n"));
}

TEST(DescribeStatus, Kinds_AreOneLineEachHoweverManyHoldThem) {
  v1::Status status;
  for (int rank = 0; rank < 40; ++rank) {
    v1::LedgerEntry* entry = status.mutable_ledger()->add_entries();
    entry->set_tier(v1::TIER_HOST);
    entry->set_kind(v1::CHUNK_KIND_WEIGHT);
    entry->set_bytes(kMiB);
    entry->set_chunks(2);
  }
  const std::string text = DescribeStatus(status, {}, {});
  EXPECT_THAT(text, ContainsRegex("weight +80 +40.0MiB +0B\n"));
  EXPECT_THAT(text, Not(HasSubstr("smaller")));
}

TEST(DescribeStatus, Gpus_AreOneLineEachWithTheirAgent) {
  v1::Status status;
  EXPECT_THAT(DescribeStatus(status, {}, {}), Not(HasSubstr("AGENT")));
  v1::GpuInfo* const gpu = status.add_gpus();
  gpu->set_device(1);
  gpu->set_agent("serving");
  gpu->set_pid(77);
  gpu->set_restarts(2);
  gpu->set_slab_bytes(8 * kMiB);
  gpu->set_free_bytes(2 * kMiB);
  gpu->set_why("signal 9");
  EXPECT_THAT(DescribeStatus(status, {}, {}),
              ContainsRegex("1 +serving +77 +2 +8.0MiB +2.0MiB +signal 9\n"));
}

TEST(DescribeStatus, ManyJobs_AreCutAndCounted) {
  v1::ListSessionsResponse sessions;
  for (int job = 0; job < 15; ++job) AddSession(&sessions, "uid:1", absl::StrCat("job", job), kMiB);
  EXPECT_THAT(DescribeStatus({}, sessions, {}), HasSubstr("and 3 smaller"));
}

}  // namespace
}  // namespace geminid::ctl
