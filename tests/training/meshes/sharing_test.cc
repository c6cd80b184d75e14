#include "training/meshes/sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "training/meshes/choose.h"
#include "training/meshes/links.h"
#include "training/meshes/mesh_rank_work.h"

namespace geminid::parallel {
namespace {

using ::testing::HasSubstr;

forecast::Job JobOf(std::uint32_t nodes, std::uint32_t ranks) {
  forecast::Job job;
  job.hardware = *forecast::FindHardware("rtx-3090-24gb");
  job.nodes = nodes;
  job.ranks = ranks;
  job.host_bytes = std::uint64_t{512} << 30;
  job.batch = {.sequences = 4, .sequence_length = 1024};
  return job;
}

// Three chunks of 5 bytes each, gathered twice. Two of them are also reduced.
constexpr forecast::GatherTraffic kPass = {.bytes = 40,
                                           .collectives = 8,
                                           .gather_bytes = 30,
                                           .gathers = 6,
                                           .chunk_bytes = 15,
                                           .chunks = 3};
constexpr std::uint64_t kMicroBatches = 3;

TEST(SharingOf, WithoutHosts_IsOverAllRanks) {
  const forecast::Job job = JobOf(2, 8);
  const MeshSpec mesh = {.data = 8};
  const Sharing sharing = SharingOf(mesh, job, kPass, kMicroBatches);
  EXPECT_EQ(SharedBytes(mesh, job, sharing), 40 * 7.0 / 8);
  const Link link = LinkOf(SharingGroup(mesh), job);
  EXPECT_DOUBLE_EQ(SharingSeconds(mesh, job, sharing), 35 / link.bytes_per_second +
                                                           8 * 7 * link.message_seconds +
                                                           8 * job.hardware.exchange_seconds);
}

// Each of three micro-batches has six gathers. Only three gathers of a step are over all ranks.
TEST(SharingOf, WithinHosts_IsOverAllRanksOnceAStepForEachChunk) {
  const forecast::Job job = JobOf(2, 8);
  const MeshSpec mesh = {.data = 8, .within_host = true};
  EXPECT_EQ(SharingRanksOfHost(mesh, job), 4);
  const Sharing sharing = SharingOf(mesh, job, kPass, kMicroBatches);
  EXPECT_EQ(sharing.within_host.bytes, 25);
  EXPECT_EQ(sharing.within_host.collectives, 5);
  EXPECT_EQ(SharedBytes(mesh, job, sharing), 15 * 7.0 / 8 + 25 * 3.0 / 4);
  const Link far = LinkOf({.stride = 1, .size = 8}, job);
  const Link near = LinkOf({.stride = 1, .size = 4}, job);
  EXPECT_DOUBLE_EQ(SharingSeconds(mesh, job, sharing),
                   15 * 7.0 / 8 / far.bytes_per_second + 3 * 7 * far.message_seconds +
                       25 * 3.0 / 4 / near.bytes_per_second + 5 * 3 * near.message_seconds +
                       8 * job.hardware.exchange_seconds);
}

TEST(SharingOf, WithOneRankOnEachHost_GathersAgainFromNobody) {
  const forecast::Job job = JobOf(4, 8);
  const MeshSpec mesh = {.data = 4, .tensor = 2, .within_host = true};
  EXPECT_EQ(SharingRanksOfHost(mesh, job), 1);
  EXPECT_EQ(SharedBytes(mesh, job, SharingOf(mesh, job, kPass, kMicroBatches)), 15 * 3.0 / 4);
}

TEST(SharingOf, OfStagesOnAHostEach_IsAsWithoutHosts) {
  const forecast::Job job = JobOf(2, 8);
  const MeshSpec mesh = {.pipeline = 2, .data = 4, .within_host = true};
  EXPECT_FALSE(GathersWithinHosts(mesh, job));
  EXPECT_EQ(SharingOf(mesh, job, kPass, kMicroBatches).over_all.bytes, 40);
  EXPECT_EQ(CheckWithinHosts(mesh, job), absl::OkStatus());
}

TEST(CheckWithinHosts, OfWhatCannotBe_SaysWhy) {
  const auto refusal = [](const MeshSpec& mesh, const forecast::Job& job) {
    return std::string(CheckWithinHosts(mesh, job).message());
  };
  const MeshSpec mesh = {.data = 8, .within_host = true};
  EXPECT_EQ(refusal(mesh, JobOf(2, 8)), "");
  EXPECT_THAT(refusal(mesh, JobOf(1, 8)), HasSubstr("all ranks are on one host; take zero=3"));
  const MeshSpec uneven = {.pipeline = 3, .data = 2, .within_host = true};
  EXPECT_THAT(refusal(uneven, JobOf(2, 6)), HasSubstr("this mesh has more on some"));
  EXPECT_EQ(refusal({.pipeline = 3, .data = 2}, JobOf(2, 6)), "");
}

TEST(PlanMesh, WithinHosts_GathersSoonerOverASlowNetworkForMoreHostMemory) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  forecast::Job job = JobOf(2, 4);
  job.hardware.network_bytes_per_second = 1e9;
  Setting setting = {.mesh = {.data = 4}, .micro_batches = 4};
  const auto third = PlanMesh(model, job, setting);
  setting.mesh.within_host = true;
  const auto within = PlanMesh(model, job, setting);
  ASSERT_TRUE(third.ok() && within.ok()) << third.status() << within.status();
  ASSERT_TRUE(third->fits && within->fits);
  EXPECT_LT(within->sharing_seconds, third->sharing_seconds);
  EXPECT_LT(within->received_bytes, third->received_bytes);
  EXPECT_LE(within->cost.least_step_seconds, within->step_seconds * (1 + 1e-9));
  EXPECT_LE(within->cost.received_bytes, within->received_bytes * (1 + 1e-9));
  // The two ranks of a host have half of the weights each.
  const double weights = 2.0 * static_cast<double>(CountParameters(model));
  EXPECT_GE(static_cast<double>(within->host_bytes - third->host_bytes), 0.5 * weights);
  EXPECT_LE(static_cast<double>(within->host_bytes - third->host_bytes), 0.6 * weights);
}

// The device holds the state, so host memory is needed only for the weights.
TEST(PlanMesh, WithinHostsThatHaveNoRoomForTheirWeights_DoesNotFit) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  forecast::Job job = JobOf(2, 4);
  job.host_bytes = 0;
  Setting setting = {.mesh = {.data = 4}, .micro_batches = 4};
  const auto third = PlanMesh(model, job, setting);
  setting.mesh.within_host = true;
  const auto within = PlanMesh(model, job, setting);
  ASSERT_TRUE(third.ok() && within.ok()) << third.status() << within.status();
  ASSERT_TRUE(third->fits);
  EXPECT_FALSE(within->fits);
}

}  // namespace
}  // namespace geminid::parallel
