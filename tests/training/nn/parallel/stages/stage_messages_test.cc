#include "training/nn/parallel/stages/stage_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/world.h"
#include "tests/training/nn/parallel/counting_memory.h"
#include "training/nn/parallel/stages/executor.h"

namespace geminid::collectives {
namespace {

using testing::HasSubstr;

size_t Most(const PipelineShape& shape, int stage) {
  return MostStageMessages(shape, *MakePipelineSchedule(shape), stage);
}

TEST(MostStageMessages, OfOneStage_IsNone) { EXPECT_EQ(Most({PipelineKind::k1F1B, 1, 4}, 0), 0u); }

// By hand, for two stages and four micro-batches. The first stage sends two activations, takes a
// gradient, sends the third, takes the second gradient and so on. While a gradient comes, the two
// activations before may both be in flight, because only the gradient tells that one has arrived.
// The second stage receives an activation while the two gradients before may be in flight.
TEST(MostStageMessages, OfTwoStages_AreThoseByHand) {
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 4}, 0), 3u);
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 4}, 1), 3u);
  // With one micro-batch, nothing tells the first stage that its activation has arrived when the
  // gradient comes. The second stage has first the activation, then the gradient.
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 1}, 0), 2u);
  EXPECT_EQ(Most({PipelineKind::k1F1B, 2, 1}, 1), 1u);
}

// Simulates stages that do one thing at a time, in any order that their needs allow: take the next
// message, or run an action.
class Played {
 public:
  explicit Played(const PipelineShape& shape)
      : shape_(shape), schedule_(*MakePipelineSchedule(shape)), stages_(schedule_.size()) {}

  bool IsDone(int stage) const { return Of(stage).done == ActionsOf(stage).size(); }

  // The stage for which this stage waits, if it cannot continue.
  std::optional<int> WaitsFor(int stage) const {
    const auto need = NeedOf(shape_, stage, ActionsOf(stage)[Of(stage).done]);
    if (!need.has_value() || Of(stage).here.contains(need->stage_message)) return std::nullopt;
    const auto way = ways_.find({need->stage, stage});
    return way == ways_.end() || way->second.empty() ? std::optional(need->stage) : std::nullopt;
  }

  // A waiting stage has a buffer for the message that comes.
  void Wait(int stage) { Note(stage, 1); }

  // Takes a message or runs an action. The stage must not wait for another.
  void Step(int stage) {
    OfStage& one = stages_[static_cast<size_t>(stage)];
    const PipelineAction& action = ActionsOf(stage)[one.done];
    const auto need = NeedOf(shape_, stage, action), delivery = DeliveryOf(shape_, stage, action);
    if (need.has_value() && !one.here.contains(need->stage_message)) {
      std::deque<StageMessage>& way = ways_[{need->stage, stage}];
      one.here.insert(way.front());
      Note(stage, 0);
      way.pop_front();
      return;
    }
    if (delivery.has_value() && delivery->stage != stage) {
      ways_[{stage, delivery->stage}].push_back(delivery->stage_message);
      Note(stage, 0);
    } else {
      Note(stage, delivery.has_value() ? 1 : 0);
    }
    if (need.has_value()) one.here.erase(need->stage_message);
    if (delivery.has_value() && delivery->stage == stage) one.here.insert(delivery->stage_message);
    ++one.done;
  }

  // Runs until `stage` has sent `to` a message that is not taken, and no further.
  void AdvanceUntilItSends(int stage, int to) {
    while (ways_[{stage, to}].empty()) {
      if (const std::optional<int> other = WaitsFor(stage)) {
        AdvanceUntilItSends(*other, stage);
      } else {
        Step(stage);
      }
    }
  }

  size_t most(int stage) const { return Of(stage).most; }

 private:
  struct OfStage {
    size_t done = 0;  // actions
    std::set<StageMessage> here;
    size_t most = 0;
  };
  const OfStage& Of(int stage) const { return stages_[static_cast<size_t>(stage)]; }
  const std::vector<PipelineAction>& ActionsOf(int stage) const {
    return schedule_[static_cast<size_t>(stage)];
  }
  void Note(int stage, size_t given) {
    size_t stage_messages = Of(stage).here.size() + given;
    for (const auto& [route, way] : ways_) stage_messages += route[0] == stage ? way.size() : 0;
    OfStage& one = stages_[static_cast<size_t>(stage)];
    one.most = std::max(one.most, stage_messages);
  }

  const PipelineShape shape_;
  const PipelineSchedule schedule_;
  std::vector<OfStage> stages_;
  std::map<std::array<int, 2>, std::deque<StageMessage>> ways_;
};

// The most messages if every other stage does only what this stage needs.
size_t MostWhereOthersLag(const PipelineShape& shape, int stage) {
  Played played(shape);
  while (!played.IsDone(stage)) {
    if (const std::optional<int> other = played.WaitsFor(stage)) {
      played.Wait(stage);
      played.AdvanceUntilItSends(*other, stage);
    } else {
      played.Step(stage);
    }
  }
  return played.most(stage);
}

std::vector<PipelineShape> SmallPipelines() {
  std::vector<PipelineShape> shapes;
  for (const int stages : {2, 3, 4}) {
    for (const int rounds : {1, 2, 3}) {
      shapes.push_back({PipelineKind::k1F1B, stages, rounds * stages, 1});
      shapes.push_back({PipelineKind::kInterleaved, stages, rounds * stages, 2});
      shapes.push_back({PipelineKind::kZeroBubbleV, stages, rounds * stages, 2});
    }
  }
  return shapes;
}

// With more than two stages that send in circles, a stage may know of more arrivals than
// MostStageMessages assumes.
TEST(MostStageMessages, WhereTheOthersLag_AreThoseThatAreThere) {
  for (const PipelineShape& shape : SmallPipelines()) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      SCOPED_TRACE(testing::Message() << Name(shape.kind) << " " << shape.stages << " x "
                                      << shape.micro_batches << ", stage " << stage);
      const size_t there = MostWhereOthersLag(shape, stage);
      if (shape.kind == PipelineKind::k1F1B || shape.stages == 2) {
        EXPECT_EQ(Most(shape, stage), there);
      } else {
        EXPECT_GE(Most(shape, stage), there);
      }
    }
  }
}

TEST(MostStageMessages, InAnyOrderOfWork_AreEnough) {
  std::mt19937 random(1);
  for (const PipelineShape& shape : SmallPipelines()) {
    for (int time = 0; time < 20; ++time) {
      Played played(shape);
      for (;;) {
        std::vector<int> able;
        for (int stage = 0; stage < shape.stages; ++stage) {
          if (played.IsDone(stage)) continue;
          if (played.WaitsFor(stage).has_value()) {
            played.Wait(stage);
          } else {
            able.push_back(stage);
          }
        }
        if (able.empty()) break;
        played.Step(able[random() % able.size()]);
      }
      for (int stage = 0; stage < shape.stages; ++stage) {
        EXPECT_TRUE(played.IsDone(stage));
        EXPECT_LE(played.most(stage), Most(shape, stage)) << Name(shape.kind) << " " << stage;
      }
    }
  }
}

// More micro-batches than fill the pipeline do not change the number.
TEST(MostStageMessages, OfMoreMicroBatches_DoNotGrow) {
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
                  HasSubstr("transfer buffers between the stages of a pipeline ("));
      EXPECT_EQ(memory.in_use_bytes(), 0u);
    });
  }
}

}  // namespace
}  // namespace geminid::collectives
