// Chunks that stay from their gather until the weights change.
#include "client/zero/core/staying.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "client/zero/core/director.h"

namespace geminid::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kBytes = 10;
constexpr size_t kWeights = 3;  // the last one is frozen; the first one's gradient follows
constexpr StayingWeights kStaying = {.chunks = kWeights};

Move GatherOf(uint32_t chunk) { return {Move::Kind::kGather, chunk}; }
Move PlannedGather(uint32_t chunk, uint64_t offset, uint32_t due) {
  return {Move::Kind::kGather, chunk, offset, due};
}
Move DropOf(uint32_t chunk) { return {Move::Kind::kDrop, chunk}; }

// The moments use weight 1, weight 0, and weight 0 with its gradient.
Trace TwoWeights() {
  Trace trace;
  trace.chunks.resize(kWeights + 1);
  for (size_t chunk = 0; chunk < kWeights; ++chunk) trace.chunks[chunk].transfer_bytes = kBytes;
  trace.chunks[2].frozen = true;
  trace.moments.resize(3);
  trace.moments[0].uses = {{1}};
  trace.moments[1].uses = {{0}};
  trace.moments[2].uses = {{0}, {3, true}};
  return trace;
}

PlannedRun PlanOf(const Trace& trace) {
  Plan plan;
  plan.moments.resize(3);
  plan.resident_at_start = {{0, 0}, {1, 10}};
  plan.moments[2].loads = {{3, 30, 2}};
  plan.moments[2].drops = {{3, true, 0}};
  return PlannedRun(plan, trace.moments, 0);
}

class StayingTest : public ::testing::Test {
 protected:
  Moves Use(std::vector<uint32_t> chunks, bool evaluate = false) {
    const Moves moves = director_.BeginOperator(evaluate, chunks);
    for (uint32_t chunk : chunks) director_.Release(chunk);
    return moves;
  }
  void EndMicroBatch() {
    EXPECT_THAT(director_.EndOperators(), IsEmpty());
    EXPECT_THAT(director_.EndMicroBatch(), IsEmpty());
  }

  Director director_{{{.bytes = kBytes, .stays = true},
                      {.bytes = kBytes, .stays = true},
                      {.bytes = kBytes, .stays = true, .changes = false},
                      {.bytes = kBytes, .is_gradient = true}}};
};

TEST_F(StayingTest, WithoutAPlan_AreGatheredOnceUntilTheyChange) {
  for (int step = 0; step < 2; ++step) {
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      (void)director_.BeginMicroBatch();
      for (const uint32_t chunk : {0u, 1u, 0u}) {
        const bool first = micro_batch == 0 && !director_.OnDevice(chunk);
        EXPECT_EQ(Use({chunk}), first ? Moves{GatherOf(chunk)} : Moves{});
      }
      EXPECT_THAT(Use({2}), step + micro_batch == 0 ? Moves{GatherOf(2)} : Moves{});
      EndMicroBatch();
    }
    // A chunk that no step changes is not dropped.
    EXPECT_THAT(director_.ChangeWeights(), ElementsAre(DropOf(0), DropOf(1)));
  }
}

TEST_F(StayingTest, ByAPlan_AreGatheredInTheOrderOfTheirUseOnceUntilTheyChange) {
  EXPECT_THAT(director_.PutInForce(PlanOf(TwoWeights())), IsEmpty());
  for (int step = 0; step < 2; ++step) {
    EXPECT_THAT(director_.BeginMicroBatch(),
                ElementsAre(PlannedGather(1, 10, 0), PlannedGather(0, 0, 1)));
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      if (micro_batch > 0) {
        EXPECT_THAT(director_.BeginMicroBatch(), IsEmpty());
      }
      EXPECT_THAT(Use({1}), IsEmpty());
      EXPECT_THAT(Use({0}), IsEmpty());
      EXPECT_EQ(Use({0, 3}).size(), 1u);  // the gradient's place
      director_.NoteGradient(3);
      (void)director_.Reduce(3);
      EndMicroBatch();
      EXPECT_EQ(director_.outcome(), Director::Outcome::kFollowed);
    }
    EXPECT_THAT(director_.ChangeWeights(), ElementsAre(DropOf(0), DropOf(1)));
  }
}

// Other operators use it, such as a pipeline's forward pass, which no plan describes.
TEST_F(StayingTest, WhatThePlanDoesNotUse_IsGatheredLast) {
  const Trace trace = TwoWeights();
  Plan plan = PlanOf(trace).plan();
  plan.resident_at_start = {{0, 0}, {1, 10}, {2, 20}};
  EXPECT_THAT(director_.PutInForce(PlannedRun(plan, trace.moments, 0)), IsEmpty());
  EXPECT_THAT(
      director_.BeginMicroBatch(),
      ElementsAre(PlannedGather(1, 10, 0), PlannedGather(0, 0, 1), PlannedGather(2, 20, 0)));
}

TEST_F(StayingTest, WhenAPlanWantsThemElsewhere_ComeThereWithTheNextMicroBatch) {
  (void)director_.BeginMicroBatch();
  EXPECT_EQ(Use({0}).size(), 1u);
  EndMicroBatch();
  EXPECT_THAT(director_.PutInForce(PlanOf(TwoWeights())), ElementsAre(DropOf(0)));
  EXPECT_EQ(director_.BeginMicroBatch().size(), 2u);
}

TEST_F(StayingTest, AfterTheirValuesWereChanged_AreAllDropped) {
  EXPECT_EQ(Use({0, 2}, /*evaluate=*/true).size(), 2u);
  EXPECT_THAT(director_.DropAll(), ElementsAre(DropOf(0), DropOf(2)));
}

TEST(WithWhatStays, OfATrace_HasWhatItUsesInAllMoments) {
  const Trace with = WithWhatStays(TwoWeights(), kStaying);
  for (const TraceMoment& moment : with.moments) {
    std::vector<uint32_t> weights;
    for (const TraceUse& use : moment.uses) {
      if (use.index < kWeights) weights.push_back(use.index);
      EXPECT_EQ(use.invalidates, use.index >= kWeights);
    }
    EXPECT_THAT(weights, ::testing::UnorderedElementsAre(0, 1));
  }
  EXPECT_EQ(with.moments[2].uses.size(), 3u);
}

TEST(WithWhatStays, WhereOthersUseTheRest_HasAllWeightsInAllMoments) {
  Trace trace = TwoWeights();
  trace.moments[0].uses = {};  // this moment used weight 1
  const StayingWeights all = {.chunks = kWeights, .unused_too = true};
  for (const TraceMoment& moment : WithWhatStays(trace, all).moments) {
    std::vector<uint32_t> weights;
    for (const TraceUse& use : moment.uses) {
      if (use.index < kWeights) weights.push_back(use.index);
    }
    EXPECT_THAT(weights, ::testing::UnorderedElementsAre(0, 1, 2));
  }
  EXPECT_EQ(BytesGatheredOnce(trace, all), 2 * kBytes);
  EXPECT_EQ(BytesGatheredOnce(trace, kStaying), kBytes);
}

TEST(KeepsStayingWeights, OfAPlanThatLoadsAWeight_IsFalse) {
  const Trace trace = TwoWeights();
  EXPECT_TRUE(KeepsStayingWeights(PlanOf(trace).plan(), kStaying));
  Plan moves = PlanOf(trace).plan();
  moves.moments[1].loads = {{0, 20, 1}};
  EXPECT_FALSE(KeepsStayingWeights(moves, kStaying));
}

TEST(BytesGatheredOnce, OfATrace_AreThoseOfTheTrainedWeightsItUses) {
  Trace trace = TwoWeights();
  EXPECT_EQ(BytesGatheredOnce(trace, kStaying), 2 * kBytes);
  trace.moments[0].uses.push_back({2});  // frozen
  EXPECT_EQ(BytesGatheredOnce(trace, kStaying), 2 * kBytes);
  trace.moments[0].uses = {};
  EXPECT_EQ(BytesGatheredOnce(trace, kStaying), kBytes);
}

}  // namespace
}  // namespace geminid::zero
