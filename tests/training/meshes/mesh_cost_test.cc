#include "training/meshes/mesh_cost.h"

#include <gtest/gtest.h>

#include "training/forecast/catalogue.h"
#include "training/forecast/hardware.h"
#include "training/meshes/choose.h"

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
  return job;
}

// A rank talks to the others of each of its groups: 27 in a cube of 1000 ranks, 999 in a line.
TEST(PartnersOf, CountsEachGroupsOthers) {
  EXPECT_EQ(PartnersOf({.tensor_mode = TensorMode::k3D, .tensor = 1000}), 27);
  EXPECT_EQ(PartnersOf({.tensor = 1000}), 999);
  EXPECT_EQ(PartnersOf({.data = 1000}), 999);
  EXPECT_EQ(PartnersOf({.pipeline = 2, .data = 4, .sequence = 2, .tensor = 4}), 1 + 7 + 3);
  EXPECT_EQ(PartnersOf({.pipeline = 3}), 2);
  EXPECT_EQ(PartnersOf({}), 0);
}

// Six operations per parameter and token, plus the products of attention. Each rank of any mesh has
// an equal part. Recomputation adds a third.
TEST(CostOf, Compute_IsTheOperationsOfTheModelOverTheRanks) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(8, 64);
  const double tokens = 2.0 * 64 * 2048;
  const double parameters = static_cast<double>(CountParameters(model)) -
                            static_cast<double>(model.position_table_rows() * model.hidden);
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

// (M + S - 1) slots of the slowest stage, plus the transfers between stages.
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

// Compares a line of 8 within a node with one that crosses the network.
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

// A stage in the middle has weights of its own. It receives activations from one side and gradients
// from the other; in ZBV it receives both from both sides.
TEST(CostOf, Pipelines_ReceiveOneOrTwoBoundariesFromEachSide) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  const forecast::Job job = JobOf(1, 8);
  MeshSpec mesh = {.pipeline = 8};
  const auto received = [&] {
    const auto cost = CostOf(model, job, {.mesh = mesh, .micro_batches = 16});
    EXPECT_TRUE(cost.ok()) << cost.status();
    return cost.value_or(Cost()).received_bytes;
  };
  const double boundary = 2.0 * 2048 * 12288;  // of a micro-batch's one sequence
  EXPECT_EQ(received(), 16 * 2 * boundary);
  mesh.schedule = collectives::PipelineKind::kZeroBubbleV;
  EXPECT_EQ(received(), 16 * 4 * boundary);
}

// A rank's weights in a ring of 8. Per micro-batch they are gathered and reduced (stage 3) or only
// reduced (stage 2); in stage 1 both happen once a step.
TEST(CostOf, InEachOfZerosStages_ReceivesItsClosedFormAndTakesItsPlaces) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  const forecast::Job job = JobOf(1, 8);
  const auto cost = [&](int zero, std::uint64_t micro_batches) {
    const auto made =
        CostOf(model, job, {.mesh = {.data = 8, .zero = zero}, .micro_batches = micro_batches});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or(Cost());
  };
  const auto parameters = static_cast<double>(CountParameters(model));
  const double once = 2 * parameters * 7 / 8;
  EXPECT_NEAR(cost(3, 2).received_bytes, 4 * once, 1);
  EXPECT_NEAR(cost(2, 2).received_bytes, 3 * once, 1);
  EXPECT_NEAR(cost(1, 2).received_bytes, 2 * once, 1);
  EXPECT_NEAR(cost(1, 1).received_bytes, 2 * once, 1);
  const auto bytes = [&](int zero, std::uint64_t micro_batches) {
    return static_cast<double>(cost(zero, micro_batches).least_device_bytes);
  };
  EXPECT_NEAR(bytes(1, 2) - bytes(2, 2), 4 * parameters, 1);
  EXPECT_EQ(bytes(1, 1), bytes(2, 1));
  // All weights, and the gradients of the table, the largest operator.
  const double table = 2.0 * static_cast<double>(model.vocabulary * model.hidden);
  EXPECT_GE(bytes(2, 2) - bytes(3, 2), 2 * parameters + table);
  EXPECT_LE(bytes(2, 2) - bytes(3, 2), 2 * parameters + 1.1 * table);
}

// If a stage below the third fits, the step is never longer. It is shorter if ranks wait for
// sharing.
TEST(PlanMesh, InZerosStagesBelowTheThird_SharesLess) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  forecast::Job job = JobOf(1, 4);
  job.hardware.peer_bytes_per_second = 1e8;
  const auto planned = [&](int zero) {
    const auto made = PlanMesh(model, job, {.mesh = {.data = 4, .zero = zero}, .micro_batches = 2});
    EXPECT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(made->fits);
    return made.value_or(PlannedMesh());
  };
  const PlannedMesh third = planned(3), second = planned(2), first = planned(1);
  EXPECT_LT(second.step_seconds, third.step_seconds);
  EXPECT_LT(first.step_seconds, second.step_seconds);
  EXPECT_NEAR(second.sharing_seconds / third.sharing_seconds, 3.0 / 4, 1e-3);
  EXPECT_NEAR(first.sharing_seconds / third.sharing_seconds, 2.0 / 4, 1e-3);
  EXPECT_GT(first.device_bytes, second.device_bytes);
  // The device has no memory for all weights.
  job.hardware.device_bytes = job.hardware.reserved_bytes + CountParameters(model) * 2;
  job.hardware.peer_bytes_per_second = 1e11;
  const auto small = PlanMesh(model, job, {.mesh = {.data = 4, .zero = 2}, .micro_batches = 2});
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_FALSE(small->fits);
}

// ZBV has twice as many boundaries and no second table. Its schedule decides the parts in flight.
TEST(PlanMesh, InAZeroBubblePipeline_WaitsLessAndHoldsWhatItsScheduleDoes) {
  const forecast::Model model = *forecast::FindModel("gpt3-175b");
  forecast::Job job = JobOf(1, 8);
  job.host_bytes = std::uint64_t{1} << 42;
  MeshSpec mesh = {.pipeline = 8};
  const auto planned = [&] {
    const auto made = PlanMesh(
        model, job,
        {.mesh = mesh, .micro_batches = 16, .activations = forecast::Activations::kRecompute});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or(PlannedMesh());
  };
  const PlannedMesh one_way = planned();
  mesh.schedule = collectives::PipelineKind::kZeroBubbleV;
  const PlannedMesh both_ways = planned();
  ASSERT_TRUE(one_way.fits && both_ways.fits);
  EXPECT_LT(both_ways.step_seconds, one_way.step_seconds);
  EXPECT_LT(both_ways.bubble, one_way.bubble / 2);
  // A stage with kept activations would hold no more than the first stage of 1F1B. Here only inputs
  // are kept, so the values for the weights' gradients take more.
  EXPECT_GT(both_ways.device_bytes, one_way.device_bytes);
  EXPECT_EQ(TiedTableBytes(*forecast::FindModel("gpt2"), mesh), 0);
}

// By hand, with one micro-batch at a time: the forward bytes of a part, then the bytes for the
// gradients of its weights.
TEST(InFlightInHalves, OfOneMicroBatchAtATime_IsTheMostOfItsParts) {
  const forecast::Model model = *forecast::FindModel("gpt2");
  forecast::Job job = JobOf(1, 2);
  const MeshSpec mesh = {.pipeline = 2, .schedule = collectives::PipelineKind::kZeroBubbleV};
  job.activations = forecast::Activations::kKeep;
  const forecast::ModelPart range = {.layers = 3, .embeds = false, .outputs = false};
  const Stage stage = {.layers = range, .parts = {range, range}};
  using enum collectives::PipelineWork;
  EXPECT_EQ(InFlightInHalves(model, job, mesh, stage, {{kForward, 0, 0}, {kForward, 1, 0}}), 1);
  EXPECT_EQ(InFlightInHalves(model, job, mesh, stage,
                             {{kForward, 0, 0}, {kForward, 1, 0}, {kForward, 0, 1}}),
            1.5);
  // A token has 2 H and 2 q + 2 kv, and 2 H and 2 I, beside what norms and softmax keep.
  const MeshRankWork work(model, job, mesh, range, 1);
  const double tokens = static_cast<double>(job.batch.tokens());
  EXPECT_EQ(static_cast<double>(work.LaterBytesOf(forecast::Operator::kAttention)),
            2 * tokens * 6 * 768);
  EXPECT_EQ(static_cast<double>(work.LaterBytesOf(forecast::Operator::kMlp)),
            2 * tokens * (2 * 768 + 2 * 3072));
}

// The first stage holds the activations of all micro-batches in flight.
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
