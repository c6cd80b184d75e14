// Compares the choice with trying everything, and tests the headline models.
#include "training/meshes/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "training/forecast/catalogue.h"
#include "training/forecast/hardware.h"

namespace geminid::parallel {
namespace {

using collectives::TensorMode;
using testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

forecast::Job JobOf(std::uint32_t nodes, std::uint32_t ranks, const char* hardware) {
  forecast::Job job;
  job.hardware = *forecast::FindHardware(hardware);
  job.nodes = nodes;
  job.ranks = ranks;
  job.host_bytes = 512 * kGiB;
  job.batch = {.sequences = 4, .sequence_length = 1024};
  return job;
}

// Plans every setting of every mesh.
std::vector<PlannedMesh> PlanAll(const forecast::Model& model, const forecast::Job& job) {
  std::vector<PlannedMesh> all;
  for (const MeshSpec& mesh : MeshesOf(static_cast<int>(job.ranks))) {
    if (!CheckMesh(model, job.batch.sequence_length, mesh).ok()) continue;
    for (const Setting& setting : SettingsOf(job, mesh)) {
      auto planned = PlanMesh(model, job, setting);
      EXPECT_TRUE(planned.ok()) << planned.status();
      all.push_back(*std::move(planned));
    }
  }
  return all;
}

class ChooseByTrial : public testing::TestWithParam<double> {};

// Tests a slow network, a fast one, and memory that some settings exceed.
TEST_P(ChooseByTrial, IsTheFastestOfAllSettingsThatFit) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  forecast::Job job = JobOf(2, 4, "rtx-3090-24gb");
  job.hardware.network_bytes_per_second = GetParam();
  job.hardware.device_bytes = 4 * kGiB;
  const std::vector<PlannedMesh> all = PlanAll(model, job);
  double fastest = 1e9;
  std::size_t too_large = 0;
  for (const PlannedMesh& planned : all) {
    if (planned.cost.least_device_bytes > job.hardware.usable_bytes()) {
      ++too_large;
      EXPECT_FALSE(planned.fits) << ToString(planned.setting.mesh);
    }
    if (!planned.fits) continue;
    EXPECT_LE(planned.cost.least_step_seconds, planned.step_seconds * (1 + 1e-9))
        << ToString(planned.setting.mesh);
    EXPECT_LE(planned.cost.received_bytes, planned.received_bytes * (1 + 1e-9));
    EXPECT_LE(planned.cost.least_device_bytes, planned.device_bytes);
    fastest = std::min(fastest, planned.step_seconds);
  }
  const auto choice = Choose(model, job, {.most_planned = 1000});
  ASSERT_TRUE(choice.ok()) << choice.status();
  ASSERT_TRUE(choice->fits());
  EXPECT_EQ(choice->planned.front().step_seconds, fastest);
  EXPECT_EQ(choice->settings, all.size());
  EXPECT_EQ(choice->too_large, too_large);
  EXPECT_EQ(choice->not_planned, 0u);
  EXPECT_EQ(choice->planned.size() + choice->too_large + choice->bounded_out, all.size());
  // The bounds skip most of the planning and do not change the choice.
  const auto bounded = Choose(model, job, {.most_planned = 1000, .kinds = false});
  ASSERT_TRUE(bounded.ok()) << bounded.status();
  EXPECT_EQ(bounded->planned.front().setting, choice->planned.front().setting);
  EXPECT_EQ(bounded->planned.size(), choice->planned.size() - choice->for_comparison);
  EXPECT_LT(bounded->planned.size(), all.size() / 2);
}

INSTANTIATE_TEST_SUITE_P(Networks, ChooseByTrial, testing::Values(1e8, 1.25e9, 5e10));

TEST(Choose, Twice_IsTheSame) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  const forecast::Job job = JobOf(2, 4, "rtx-3090-24gb");
  const auto once = Choose(model, job, {}), again = Choose(model, job, {});
  ASSERT_TRUE(once.ok() && again.ok());
  ASSERT_EQ(once->planned.size(), again->planned.size());
  for (std::size_t i = 0; i < once->planned.size(); ++i) {
    EXPECT_EQ(once->planned[i].setting, again->planned[i].setting);
    EXPECT_EQ(once->planned[i].step_seconds, again->planned[i].step_seconds);
  }
}

TEST(Choose, Table_HasEachKindOfMeshThatFits) {
  const forecast::Model model = *forecast::FindModel("llama-7b");
  const auto choice = Choose(model, JobOf(2, 16, "a100-80gb"), {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  for (const TensorMode mode : {TensorMode::k1D, TensorMode::k1DSequence, TensorMode::k2D,
                                TensorMode::k25D, TensorMode::k3D}) {
    for (const bool pipeline : {false, true}) {
      EXPECT_TRUE(std::any_of(choice->planned.begin(), choice->planned.end(),
                              [&](const PlannedMesh& planned) {
                                const MeshSpec& mesh = planned.setting.mesh;
                                return planned.fits && mesh.tensor > 1 &&
                                       mesh.tensor_mode == mode && (mesh.pipeline > 1) == pipeline;
                              }))
          << Name(mode) << (pipeline ? " in a pipeline" : "");
    }
  }
}

TEST(Choose, OneMesh_KeepsToItAndChoosesTheRest) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  const forecast::Job job = JobOf(2, 8, "rtx-3090-24gb");
  const MeshSpec mesh = {.pipeline = 2, .tensor_mode = TensorMode::k2D, .tensor = 4};
  const auto choice = Choose(model, job, {.only = mesh});
  ASSERT_TRUE(choice.ok()) << choice.status();
  ASSERT_TRUE(choice->fits());
  for (const PlannedMesh& planned : choice->planned) EXPECT_EQ(planned.setting.mesh, mesh);
  const auto fixed = Choose(model, job, {.only = mesh, .micro_batches = 4});
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->planned.front().setting.micro_batches, 4u);
  const auto none = Choose(model, job, {.only = mesh, .micro_batches = 5});
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("32 sequences of a step are not divisible by data=1 x 5"));
  forecast::Job large = job;
  large.batch.sequences = 5000;
  const auto many = Choose(model, large, {.only = mesh, .micro_batches = 5000});
  EXPECT_THAT(std::string(many.status().message()), HasSubstr("at most 4096 micro-batches"));
}

TEST(Choose, WhatFitsNoDevice_SaysWhatTheLeastWouldTake) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  forecast::Job job = JobOf(1, 2, "rtx-3090-24gb");
  job.hardware.device_bytes = job.hardware.reserved_bytes + kGiB / 16;
  const auto choice = Choose(model, job, {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_FALSE(choice->fits());
  EXPECT_LE(choice->planned.size(), 4u);
  EXPECT_EQ(choice->too_large, choice->settings);
  EXPECT_GT(choice->planned.front().device_bytes, job.hardware.usable_bytes());
}

std::string Refusal(const char* model, const forecast::Job& job, const char* mesh) {
  const auto parsed = ParseMesh(mesh);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return std::string(MeshForJob(*forecast::FindModel(model), job, *parsed).status().message());
}

TEST(MeshForJob, WhatDoesNotFit_IsRefusedWithTheNearestThatDo) {
  const forecast::Job job = JobOf(4, 32, "a100-80gb");
  EXPECT_THAT(Refusal("llama-65b", job, "pipeline=3,data=8"),
              testing::AllOf(HasSubstr("pipeline=3,data=8 has 24 ranks and the cluster 32"),
                             HasSubstr("the nearest that fit: pipeline=4,data=8")));
  EXPECT_THAT(Refusal("llama-65b", job, "tensor=1d:32,sequence=ulysses:1,pipeline=1"), "");
  EXPECT_THAT(Refusal("gpt2", job, "tensor=1d:8"),
              testing::AllOf(HasSubstr("12 heads by 8"), HasSubstr("the nearest that fit: ")));
  const auto left = MeshForJob(*forecast::FindModel("llama-65b"), job,
                               *ParseMesh("pipeline=2,tensor=2.5d:size=8:depth=2"));
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(left->data, 2);
}

TEST(NearestThatFits, IsAMeshWhosePlanFits) {
  const forecast::Model model = *forecast::FindModel("llama-65b");
  forecast::Job job = JobOf(4, 32, "a100-80gb");
  job.host_bytes = 0;
  // 32 stages hold as many micro-batches. Otherwise the whole batch is held at once, whole in 1D.
  const MeshSpec mesh = {.pipeline = 2, .tensor = 16};
  const auto near = NearestThatFits(model, job, mesh);
  ASSERT_TRUE(near.ok()) << near.status();
  ASSERT_TRUE(near->has_value());
  EXPECT_TRUE((*near)->fits);
  EXPECT_LE((*near)->device_bytes, job.hardware.usable_bytes());
  EXPECT_NE((*near)->setting.mesh, mesh);
}

// Models that others have announced for so many devices.
struct Headline {
  const char* model;
  std::uint32_t nodes, ranks;
  forecast::Batch batch;
};

class Headlines : public testing::TestWithParam<Headline> {};

TEST_P(Headlines, GetAMeshThatFitsItsDevices) {
  const Headline& headline = GetParam();
  const forecast::Model model = *forecast::FindModel(headline.model);
  forecast::Job job = JobOf(headline.nodes, headline.ranks, "a100-80gb");
  job.batch = headline.batch;
  const auto choice = Choose(model, job, {.most_planned = 12});
  ASSERT_TRUE(choice.ok()) << choice.status();
  ASSERT_TRUE(choice->fits());
  const PlannedMesh& chosen = choice->planned.front();
  EXPECT_LE(chosen.device_bytes, job.hardware.usable_bytes());
  // The bounds: state of 12 bytes per parameter, and the achieved rate of the devices.
  const double parameters = static_cast<double>(CountParameters(model));
  const double operations = 6 * parameters * static_cast<double>(job.batch.tokens()) * job.ranks;
  const double rate = job.ranks * job.hardware.flops * job.hardware.achieved_share;
  EXPECT_GE(static_cast<double>(chosen.device_bytes + chosen.host_bytes) * job.ranks,
            12 * parameters);
  EXPECT_GE(chosen.step_seconds, operations / rate);
  EXPECT_LE(chosen.step_seconds, 2 * operations / rate);
}

INSTANTIATE_TEST_SUITE_P(
    Announced, Headlines,
    testing::Values(Headline{"llama-65b", 4, 32, {.sequences = 4, .sequence_length = 2048}},
                    Headline{"gpt3-175b", 8, 64, {.sequences = 2, .sequence_length = 2048}}));

}  // namespace
}  // namespace geminid::parallel
