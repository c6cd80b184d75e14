#include "tools/parallel/mesh_cost.h"

#include <gtest/gtest.h>

#include "tools/forecast/catalogue.h"
#include "tools/forecast/hardware.h"

namespace geminid::parallel {
namespace {

using collectives::TensorMode;

forecast::Job JobOf(std::uint32_t nodes, std::uint32_t ranks) {
  forecast::Job job;
  job.hardware = *forecast::FindHardware("a100-80gb");
  job.nodes = nodes;
  job.ranks = ranks;
  job.host_bytes = std::uint64_t{1} << 40;
  job.batch = {.sequences = 2, .sequence_length = 2048};
  job.only_executable = true;
  return job;
}

// A rank talks to the others of each of its groups: 27 in a cube of 1000 and 999 in a line.
TEST(PartnersOf, CountsEachGroupsOthers) {
  EXPECT_EQ(PartnersOf({.tensor_mode = TensorMode::k3D, .tensor = 1000}), 27);
  EXPECT_EQ(PartnersOf({.tensor = 1000}), 999);
  EXPECT_EQ(PartnersOf({.data = 1000}), 999);
  EXPECT_EQ(PartnersOf({.pipeline = 2, .data = 4, .sequence = 2, .tensor = 4}), 1 + 7 + 3);
  EXPECT_EQ(PartnersOf({.pipeline = 3}), 2);
  EXPECT_EQ(PartnersOf({}), 0);
}

// Six operations per parameter and token, and the products of attention; whatever the mesh, and
// with a rank's equal part. Recomputation adds a third.
TEST(CostOf, Compute_IsTheOperationsOfTheModelOverTheRanks) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(8, 64);
  const double tokens = 2.0 * 64 * 2048;
  const double parameters = static_cast<double>(CountParameters(model)) -
                            static_cast<double>(model.position_rows * model.hidden);
  const double attention = 96 * 7.0 * 2048 * 12288;  // a token's, 2 of 7 forward
  const double rate = 64 * job.hardware.flops * job.hardware.achieved_share;
  for (const MeshSpec& mesh : {MeshSpec{.data = 64}, MeshSpec{.data = 8, .tensor = 8},
                               MeshSpec{.data = 16, .tensor_mode = TensorMode::k2D, .tensor = 4}}) {
    Setting setting = {
        .mesh = mesh, .micro_batches = 1, .activations = forecast::Activations::kKeep};
    const auto kept = CostOf(model, job, setting);
    ASSERT_TRUE(kept.ok()) << kept.status();
    const double expected = tokens * (6 * parameters + attention) / rate;
    EXPECT_NEAR(kept->compute_seconds, expected, 0.002 * expected) << ToString(mesh);
    setting.activations = forecast::Activations::kRecompute;
    EXPECT_NEAR(CostOf(model, job, setting)->compute_seconds, expected * 4 / 3, 0.02 * expected);
  }
}

// (M + S - 1) of the slowest stage, and what crosses the stages.
TEST(CostOf, Pipeline_IsAtLeastTheSlowestStageInAllSlots) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(8, 64);
  const Setting setting = {.mesh = {.pipeline = 8, .tensor = 8}, .micro_batches = 32};
  const auto cost = CostOf(model, job, setting);
  ASSERT_TRUE(cost.ok()) << cost.status();
  const double pass = (cost->compute_seconds + cost->exchange_seconds) / 32;
  EXPECT_GE(cost->least_step_seconds, pass * (32 + 8 - 1) * (1 - 1e-9));
  EXPECT_LE(cost->least_step_seconds, pass * (32 + 8 - 1) * 1.1);
}

// A line of 8 within a node, and one that crosses the network.
TEST(CostOf, GroupsAcrossNodes_CostMore) {
  const forecast::Model model = *forecast::FindModel("llama-65b");
  const Setting setting = {.mesh = {.data = 4, .tensor = 8}, .micro_batches = 4};
  forecast::Job job = JobOf(4, 32);
  job.hardware.network_bytes_per_second = job.hardware.peer_bytes_per_second / 4;
  const auto inside = CostOf(model, job, setting);
  job.nodes = 8;
  const auto across = CostOf(model, job, setting);
  ASSERT_TRUE(inside.ok() && across.ok());
  EXPECT_GT(across->exchange_seconds, 2 * inside->exchange_seconds);
  EXPECT_EQ(across->compute_seconds, inside->compute_seconds);
  EXPECT_EQ(across->received_bytes, inside->received_bytes);
}

// Activations of all micro-batches that are on their way through the first stage.
TEST(CostOf, LeastDeviceBytes_HoldWhatIsInFlight) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(8, 64);
  const auto cost = [&](std::uint64_t micro_batches) {
    return CostOf(model, job,
                  {.mesh = {.pipeline = 8, .tensor = 8}, .micro_batches = micro_batches})
        ->least_device_bytes;
  };
  const double input = 2.0 * 2048 * 12288;  // of a part, for one sequence
  // 128 micro-batches of one sequence: 8 in flight at the first stage of 12 layers or more.
  EXPECT_GE(static_cast<double>(cost(128)), 8 * 12 * 2 * input);
  EXPECT_LE(static_cast<double>(cost(128)), 8 * 13 * 2 * input + 4e9);
  EXPECT_GE(static_cast<double>(cost(1)), 12 * 2 * input * 128);
}

}  // namespace
}  // namespace geminid::parallel
