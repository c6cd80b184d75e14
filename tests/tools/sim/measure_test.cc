#include "tools/sim/measure/measure.h"

#include "gtest/gtest.h"
#include "tools/sim/measure/timed_source.h"
#include "tools/sim/schedule.h"
#include "tools/trainer/transformer.h"

namespace geminid::sim {
namespace {

trainer::ModelConfig SmallModel() {
  trainer::ModelConfig model;
  model.family = trainer::Family::kGpt2;
  model.layers = 2;
  model.hidden = 64;
  model.heads = 2;
  model.kv_heads = 2;
  model.intermediate = 256;
  model.context = 32;
  return model;
}

TEST(Measure, SmallModel_GivesAValidTraceOfAllItsOperators) {
  const absl::StatusOr<Measurement> measured =
      Measure({.model = SmallModel(), .ranks = 2, .batch = 2, .rounds = 2});
  ASSERT_TRUE(measured.ok()) << measured.status();
  planner::Trace trace = measured->workload.trace;
  trace.arena_bytes = uint64_t{1} << 30;
  trace.link = {.h2d_bytes_per_second = 1e9, .d2h_bytes_per_second = 1e9};
  EXPECT_TRUE(ValidateTrace(trace).ok()) << ValidateTrace(trace);
  // Embedding, two halves a layer, and the output, both ways; the two turns of the output are one.
  EXPECT_EQ(trace.moments.size(), 2 * (1 + 2 * 2) + 1u);
  size_t invalidated = 0;
  for (const planner::MomentTrace& moment : trace.moments) {
    EXPECT_GT(moment.compute_seconds, 0);
    for (const planner::Use& use : moment.uses) invalidated += use.invalidates ? 1 : 0;
  }
  EXPECT_EQ(invalidated, trace.chunks.size());  // every chunk's gradient leaves once
  EXPECT_GT(measured->machine.update_parameters_per_second, 0);
  EXPECT_GT(measured->machine.inside_node.bytes_per_second, 0);
  EXPECT_GE(measured->machine.processors, 1);
}

TEST(Measure, BatchThatDoesNotDivide_IsRefused) {
  EXPECT_EQ(Measure({.model = SmallModel(), .ranks = 2, .batch = 3}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::sim
