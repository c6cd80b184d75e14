#include "training/transformer/activations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

ActivationRoom Room(uint64_t arena_mib, zero::Placement placement = zero::Placement::kAuto) {
  return {.placement = placement,
          .arena_bytes = arena_mib * kMiB,
          .workspace_bytes = 10 * kMiB,
          .kept_bytes = 40 * kMiB,
          .whole_model_bytes = 100 * kMiB,
          .weight_bytes = 60 * kMiB,
          .working_set_bytes = 5 * kMiB,
          .state_bytes = 10 * kMiB};
}

TEST(ChooseActivations, WithRoomForAll_KeepsActivations) {
  for (const auto placement :
       {zero::Placement::kAuto, zero::Placement::kCpu, zero::Placement::kDevice}) {
    const auto choice = ChooseByRoom(Room(150, placement));
    ASSERT_TRUE(choice.has_value());
    EXPECT_TRUE(choice->keeps());
    EXPECT_THAT(choice->why, HasSubstr("40.0 MiB"));
  }
}

TEST(ChooseActivations, WithTooLittleRoom_ComputesThemAgain) {
  const auto tight = ChooseByRoom(Room(64));
  ASSERT_TRUE(tight.has_value());
  EXPECT_FALSE(tight->keeps());
  EXPECT_THAT(tight->why, HasSubstr("64.0 MiB"));
  // State that stays on the device needs memory for all of it.
  const auto device = ChooseByRoom(Room(149, zero::Placement::kDevice));
  ASSERT_TRUE(device.has_value());
  EXPECT_FALSE(device->keeps());
}

TEST(ChooseActivations, WhereWeightsLeaveAnyway_KeepsWhatFits) {
  const auto choice = ChooseByRoom(Room(65, zero::Placement::kCpu));
  ASSERT_TRUE(choice.has_value());
  EXPECT_TRUE(choice->keeps());
}

TEST(ChooseActivations, WhereWeightsWouldLeaveForThem_TakesTheShorterWay) {
  ASSERT_FALSE(ChooseByRoom(Room(90)).has_value());
  // With kept activations 30 MiB of weights do not fit, without them all fit: keeping loads 60 MiB
  // more.
  const double loading = 60 * static_cast<double>(kMiB) / 1e9;
  ActivationSpeed speed = {.operations = 1e9,
                           .operations_per_second = 1e9 / (0.99 * loading),
                           .link_bytes_per_second = 1e9};
  EXPECT_FALSE(ChooseBySpeed(Room(90), speed).keeps());
  speed.operations_per_second = 1e9 / (1.01 * loading);
  const ActivationChoice keeps = ChooseBySpeed(Room(90), speed);
  EXPECT_TRUE(keeps.keeps());
  EXPECT_THAT(keeps.why, HasSubstr("40.0 MiB of them evict 62.9 ms"));
}

TEST(ChooseActivations, OfWeightsThatLeaveEitherWay_CountsTheOthersAlone) {
  // With kept activations 50 MiB of weights do not fit, and without them 10 MiB.
  const double loading = 2 * 40 * static_cast<double>(kMiB) / 1e9;
  ActivationSpeed speed = {.operations = 1e9,
                           .operations_per_second = 1e9 / (1.01 * loading),
                           .link_bytes_per_second = 1e9};
  ASSERT_FALSE(ChooseByRoom(Room(70)).has_value());
  EXPECT_TRUE(ChooseBySpeed(Room(70), speed).keeps());
  speed.operations_per_second = 1e9 / (0.99 * loading);
  EXPECT_FALSE(ChooseBySpeed(Room(70), speed).keeps());
}

// Eight items of 5 MiB each; 1 MiB of each is an input that is otherwise in the workspace.
ActivationRoom RoomWithItems(uint64_t arena_mib) {
  ActivationRoom room = Room(arena_mib);
  room.item_bytes = std::vector<uint64_t>(8, 5 * kMiB);
  room.input_bytes = kMiB;
  return room;
}

TEST(ChooseActivations, WhereItemsCanLeave_TakesTheFastestOfThreeWays) {
  // Three places fit: 2 MiB of workspace, 15 of places and 15 of model. Keeping does not fit.
  ASSERT_FALSE(ChooseByRoom(RoomWithItems(32)).has_value());
  ActivationSpeed speed = {.operations = 1e9,
                           .operations_per_second = 1e9,
                           .link_bytes_per_second = 1e12,
                           .copy_bytes_per_second = 1e9};
  const ActivationChoice offloads = ChooseBySpeed(RoomWithItems(32), speed);
  EXPECT_EQ(offloads.how, Activations::kOffload);
  EXPECT_EQ(offloads.places, 3u);
  EXPECT_THAT(offloads.why, HasSubstr("copying 25.0 MiB to host memory and back"));
  speed.copy_bytes_per_second = 1e7;
  EXPECT_EQ(ChooseBySpeed(RoomWithItems(32), speed).how, Activations::kRecompute);
  // A GPU copies while it computes, so shorter copies take no time.
  speed.copies_run_beside = true;
  speed.copy_bytes_per_second = 2e7;  // 2.6 s of copies, 3 s of computation
  EXPECT_EQ(ChooseBySpeed(RoomWithItems(32), speed).how, Activations::kOffload);
}

TEST(ChooseActivations, WithMoreRoom_TakesMorePlacesAsLongAsWeightsNeedNotLeave) {
  ActivationSpeed speed = {.operations = 1e9,
                           .operations_per_second = 1e9,
                           .link_bytes_per_second = 1e8,
                           .copy_bytes_per_second = 1e9};
  // State of 10 MiB, weights of 60 and workspace of 2 leave 28 MiB: five places. A sixth place
  // would evict 2 MiB of weights, and reloading them takes longer than copying an item.
  const ActivationChoice choice = ChooseBySpeed(RoomWithItems(100), speed);
  EXPECT_EQ(choice.how, Activations::kOffload);
  EXPECT_EQ(choice.places, 5u);
}

TEST(ChooseActivations, WithoutRoomForThreePlaces_ComputesThemAgain) {
  const auto choice = ChooseByRoom(RoomWithItems(31));
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->how, Activations::kRecompute);
}

TEST(MostPlaces, AreThoseThatFitOrTheFewest) {
  EXPECT_EQ(MostPlaces(Room(100)), 0u);
  EXPECT_EQ(MostPlaces(RoomWithItems(10)), kFewestPlaces);
  EXPECT_EQ(MostPlaces(RoomWithItems(37)), 4u);
  EXPECT_EQ(MostPlaces(RoomWithItems(1000)), 8u);
}

TEST(RecomputedOperations, OfBothFamilies_AreTheProductsThatAreNotDoneTwice) {
  ModelConfig config = {.family = Family::kGpt2,
                        .layers = 3,
                        .hidden = 8,
                        .heads = 2,
                        .kv_heads = 2,
                        .intermediate = 32,
                        .context = 10};
  const MicroBatchShape shape = {.sequences = 2, .sequence_length = 10};
  // A layer has 24 columns of q, k, v and 32 of the MLP, each from 8, and scores and values of 8
  // columns.
  EXPECT_EQ(RecomputedOperations(config, shape), 3 * (2 * 20 * 8 * (24 + 32) + 2 * 20 * 10 * 8));
  config.family = Family::kLlama;
  config.kv_heads = 1;
  EXPECT_EQ(RecomputedOperations(config, shape),
            3 * (2 * 20 * 8 * (8 + 2 * 4 + 64) + 2 * 20 * 10 * 8));
  config.family = Family::kMixtral;
  config.experts = 5;
  config.experts_per_token = 3;
  EXPECT_EQ(RecomputedOperations(config, shape),
            3 * (2 * 20 * 8 * (8 + 2 * 4 + 3 * 64) + 2 * 20 * 10 * 8));
}

}  // namespace
}  // namespace geminid::trainer
