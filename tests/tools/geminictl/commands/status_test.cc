#include "tools/geminictl/commands/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

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
  v1::LedgerEntry* files = status.mutable_ledger()->add_entries();
  files->set_tier(v1::TIER_DISK);
  files->set_kind(v1::CHUNK_KIND_ON_DISK);
  files->set_bytes(3 * kMiB);
  files->set_chunks(1);
  const std::string text = DescribeStatus(status, {}, {});
  EXPECT_THAT(
      text, ContainsRegex("weight +80 +40.0MiB +0B +0B  weights in the type of the computation\n"));
  EXPECT_THAT(text, ContainsRegex("on_disk +0 +0B +0B +3.0MiB  files of optimizer state"));
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

TEST(DescribeStatus, HealthOfGpus_SaysWhatIsUnknown) {
  v1::Status status;
  v1::GpuInfo* gpu = status.add_gpus();
  gpu->set_health("unknown");
  gpu = status.add_gpus();
  gpu->set_device(1);
  gpu->set_health("unhealthy");
  gpu->set_uncorrected_errors(0);
  gpu->set_uncorrected_errors_ever(5);
  gpu->set_retired_pages_pending(true);
  gpu->set_row_remap_pending(true);
  gpu->set_row_remap_failed(true);
  gpu->set_xids_watched(true);
  for (const auto& [xid, times] : {std::pair(48U, 1U), std::pair(79U, 3U)}) {
    gpu->add_xids()->set_xid(xid);
    gpu->mutable_xids()->rbegin()->set_times(times);
  }
  gpu->add_health_reasons("one");
  gpu->add_health_reasons("another");
  gpu = status.add_gpus();
  gpu->set_device(2);
  gpu->set_health("degraded");
  gpu->set_retired_pages_pending(false);
  gpu->set_row_remap_pending(true);
  gpu->set_row_remap_failed(false);
  gpu->set_xids_watched(true);
  const std::string text = DescribeStatus(status, {}, {});
  EXPECT_THAT(text, ContainsRegex("DEVICE +HEALTH +UNCORRECTED +EVER +PAGES +ROWS +XIDS +WHY\n"));
  EXPECT_THAT(text, ContainsRegex(" 0 +unknown +unknown +unknown +unknown +unknown +unknown +-\n"));
  EXPECT_THAT(text,
              ContainsRegex(" 1 +unhealthy +0 +5 +pending +failed +48,79\\*3 +one; another\n"));
  EXPECT_THAT(text, ContainsRegex(" 2 +degraded +unknown +unknown +good +pending +none +-\n"));
}

TEST(DescribeStatus, RegistrationsOfRanks_AreTheWorstFirst) {
  v1::Status status;
  EXPECT_THAT(DescribeStatus(status, {}, {}), Not(HasSubstr("REGISTERED")));
  for (int rank = 0; rank < 14; ++rank) {
    v1::HostRegistration* const registration = status.add_host_registrations();
    registration->set_tenant("uid:1");
    registration->set_job("demo");
    registration->set_rank(rank);
    registration->set_bytes(4 * kMiB);
    registration->set_registered_bytes(rank == 12 ? 3 * kMiB : 4 * kMiB);
    registration->set_pieces(4);
    registration->set_registered_pieces(rank == 12 ? 3 : 4);
  }
  v1::HostRegistration* const refused = status.mutable_host_registrations(13);
  refused->set_registered_bytes(2 * kMiB);
  refused->set_refused_bytes(kMiB);
  refused->set_registered_pieces(2);
  refused->set_refused_pieces(1);
  const std::string text = DescribeStatus(status, {}, {});
  EXPECT_THAT(text, ContainsRegex("FAILED\n +0 +uid:1 +demo +13 +4.0MiB +2.0MiB +1.0MiB +2/4 +1\n"
                                  " +0 +uid:1 +demo +12 +4.0MiB +3.0MiB +0B +3/4 +0\n"));
  EXPECT_THAT(text, HasSubstr("and 2 further ranks"));
}

TEST(DescribeStatus, ManyJobs_AreCutAndCounted) {
  v1::ListSessionsResponse sessions;
  for (int job = 0; job < 15; ++job) AddSession(&sessions, "uid:1", absl::StrCat("job", job), kMiB);
  EXPECT_THAT(DescribeStatus({}, sessions, {}), HasSubstr("and 3 smaller"));
}

}  // namespace
}  // namespace geminid::ctl
