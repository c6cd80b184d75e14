#include "collectives/pipeline/parcels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "collectives/pipeline/executor.h"
#include "tests/collectives/counting_memory.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using testing::HasSubstr;

size_t Most(const PipelineShape& shape, int stage) {
  return MostParcels(shape, *MakePipelineSchedule(shape), stage);
}

TEST(MostParcels, OfOneStage_IsNone) { EXPECT_EQ(Most({PipelineKind::k1F1B, 1, 4}, 0), 0u); }

// By hand, of two stages and four micro-batches. The first sends two activations, takes a gradient,
// sends the third, takes the second gradient and so on: while a gradient comes, the two activations
// before may both be under way, for it is the gradient that tells of one. To the second stage an
// activation comes while the two gradients before may be under way.
TEST(MostParcels, OfTwoStages_AreThoseByHand) {
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 4}, 0), 3u);
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 4}, 1), 3u);
  // One micro-batch: when its gradient comes, nothing has told that its activation was taken. The
  // other stage has the one, and then the other.
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 1}, 0), 2u);
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 1}, 1), 1u);
}

// More micro-batches than fill the pipeline change nothing.
TEST(MostParcels, OfMoreMicroBatches_DoNotGrow) {
  for (const auto& [kind, parts] :
       {std::pair(PipelineKind::k1F1B, 1), std::pair(PipelineKind::kInterleaved, 2),
        std::pair(PipelineKind::kZeroBubbleV, 2)}) {
    for (int stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(Most({kind, 4, 32, parts}, stage), Most({kind, 4, 64, parts}, stage))
          << Name(kind) << " " << stage;
    }
  }
}

TEST(PipelineExecutor, RoomForItsParcels_IsTakenOnceAndGivenBack) {
  constexpr size_t kElements = 7;
  for (const auto& [kind, parts] :
       {std::pair(PipelineKind::k1F1B, 1), std::pair(PipelineKind::kInterleaved, 2),
        std::pair(PipelineKind::kZeroBubbleV, 2)}) {
    const PipelineShape shape = {kind, 3, 6, parts};
    Communicators world = LocalBackend().connect(shape.stages, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      CountingMemory memory;
      {
        const auto executor = PipelineExecutor::Make(shape, {}, kElements, rank, memory);
        ASSERT_TRUE(executor.ok()) << executor.status();
        EXPECT_EQ(memory.in_use_bytes(), sizeof(float) * kElements * Most(shape, rank.Rank()));
      }
      EXPECT_EQ(memory.requests(), 1);
      EXPECT_EQ(memory.in_use_bytes(), 0u);
    });
  }
}

TEST(PipelineExecutor, RefusedItsRoomOnOneStage_SaysSoAndEndsTheOthers) {
  const PipelineShape shape = {PipelineKind::k1F1B, 3, 6};
  for (const int refused : {0, 1, 2}) {
    Communicators world = LocalBackend().connect(shape.stages, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      CountingMemory memory(rank.Rank() == refused ? 1 : 0);
      const absl::Status status =
          PipelineExecutor::Make(shape, {}, /*activation_elements=*/7, rank, memory).status();
      EXPECT_EQ(status.code(), rank.Rank() == refused ? absl::StatusCode::kResourceExhausted
                                                      : absl::StatusCode::kAborted)
          << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("what passes between the stages of a pipeline ("));
      EXPECT_EQ(memory.in_use_bytes(), 0u);
    });
  }
}

}  // namespace
}  // namespace geminid::collectives
