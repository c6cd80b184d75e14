#include "training/scaling/state_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/training/scaling/rank_of_test.h"

namespace geminid::trainer {
namespace {

using zero::ParameterId;
using zero::ShardRange;
using zero::StateKind;
using Rank = RankOfTest;

class StateImageOf : public ::testing::TestWithParam<zero::DataType> {};

TEST_P(StateImageOf, TwoRanks_GivesThreeTheirShards) {
  std::vector<std::byte> bytes;
  for (uint64_t i = 0; i < 2; ++i) {
    Rank rank(i, 2, GetParam());
    const StateImage image = ImageOf(&rank);
    bytes.resize(image.bytes());
    for (const uint32_t id : {0U, 1U}) {
      for (const StateKind kind : zero::kStateKinds) {
        for (uint64_t element = 0; element < kElements; ++element) {
          rank.At(ParameterId{id}, kind)[element] = ValueOf(id, kind, element);
        }
      }
    }
    ASSERT_TRUE(image.Write(bytes).ok());
  }
  Rank first(0, 2, GetParam());
  const checkpoint::RunState run = {.data_position = 99, .random_state = {7, 8, 9, 10}};
  ASSERT_TRUE(ImageOf(&first)
                  .WritePosition({first.progress, run, checkpoint::Health::kDiverged}, bytes)
                  .ok());
  for (uint64_t i = 0; i < 3; ++i) {
    Rank rank(i, 3, GetParam());
    const StateImage image = ImageOf(&rank);
    const auto position = image.ReadPosition(bytes);
    ASSERT_TRUE(position.ok()) << position.status();
    EXPECT_EQ(position->progress.step, 12u);
    EXPECT_EQ(position->progress.updates, 11u);
    EXPECT_EQ(position->progress.loss_scaler, first.progress.loss_scaler);
    EXPECT_EQ(position->progress.tensor_state, first.progress.tensor_state);
    EXPECT_EQ(position->run, run);
    EXPECT_EQ(position->health, checkpoint::Health::kDiverged);
    ASSERT_TRUE(image.Read(bytes).ok());
    const ShardRange mine = rank.ShardOf(ParameterId{0}).front();
    for (const uint32_t id : {0U, 1U}) {
      for (const StateKind kind : zero::kStateKinds) {
        if (!rank.HasState(ParameterId{id}, kind)) continue;
        for (uint64_t at = mine.offset; at < mine.offset + mine.elements; ++at) {
          EXPECT_EQ(rank.At(ParameterId{id}, kind)[at], ValueOf(id, kind, at)) << id << " " << at;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, StateImageOf,
                         ::testing::Values(zero::DataType::kFloat32, zero::DataType::kBFloat16));

TEST(StateImage, OfAnotherModel_IsRefused) {
  Rank rank(0, 1, zero::DataType::kFloat32);
  const StateImage image = ImageOf(&rank);
  std::vector<std::byte> bytes(image.bytes());
  ASSERT_TRUE(image.WritePosition({rank.progress, {}}, bytes).ok());
  // The image has the same number of bytes, because each array begins on a cache line.
  const StateImage other = ImageOf(&rank, Parameters(kElements - 2));
  ASSERT_EQ(other.bytes(), image.bytes());
  EXPECT_TRUE(absl::IsInternal(other.ReadPosition(bytes).status()));
  bytes.resize(bytes.size() - 1);
  EXPECT_TRUE(absl::IsInternal(image.ReadPosition(bytes).status()));
  EXPECT_TRUE(absl::IsInternal(image.WritePosition({rank.progress, {}}, bytes)));
}

}  // namespace
}  // namespace geminid::trainer
