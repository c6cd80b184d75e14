#include "training/nn/parallel/stages/held_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace geminid::collectives {
namespace {

using enum PipelineWork;

// By hand, for parts of 10 and 100 bytes whose weights' gradients need 3 and 150.
TEST(MostHeldBytes, OfActions_IsTheMostAfterAnyOfThem) {
  const std::array<PartBytes, 2> parts = {{{.forward = 10, .later = 3}, {100, 150}}};
  EXPECT_EQ(MostHeldBytes({}, parts), 0u);
  std::vector<PipelineAction> actions = {{kForward, 0, 0}, {kForward, 0, 1}, {kForward, 1, 0}};
  EXPECT_EQ(MostHeldBytes(actions, parts), 120u);
  actions.push_back({kBackwardInput, 1, 0});
  EXPECT_EQ(MostHeldBytes(actions, parts), 170u);
  actions.push_back({kBackwardWeight, 1, 0});
  actions.push_back({kBackwardInput, 0, 0});
  actions.push_back({kForward, 1, 1});
  EXPECT_EQ(MostHeldBytes(actions, parts), 170u);
}

// A backward of both halves leaves no bytes behind.
TEST(MostHeldBytes, OfAScheduleOf1F1B_IsOneForwardForEachMicroBatchInFlight) {
  const std::array<PartBytes, 1> parts = {{{.forward = 7, .later = 1000}}};
  const PipelineShape shape = {.stages = 4, .micro_batches = 9};
  const auto schedule = MakePipelineSchedule(shape);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  for (int stage = 0; stage < shape.stages; ++stage) {
    EXPECT_EQ(MostHeldBytes((*schedule)[static_cast<size_t>(stage)], parts),
              7u * static_cast<uint64_t>(MostInFlight(shape, stage)));
  }
}

}  // namespace
}  // namespace geminid::collectives
