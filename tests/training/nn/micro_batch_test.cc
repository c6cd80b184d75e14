#include "training/nn/micro_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/training/models/tiny_models.h"

namespace geminid::trainer {
namespace {

ModelConfig Config(uint64_t context) {
  ModelConfig config = TinyLlama();
  config.heads = 3;
  config.kv_heads = 3;
  config.context = context;
  config.rotary_theta = 100;
  return config;
}

// Expects the rows of positions [position, position + count), as computed in float64.
void ExpectRows(const RotaryTables& tables, size_t position, size_t count) {
  constexpr size_t kHalf = 4;
  for (size_t row = 0; row < count; ++row) {
    for (size_t i = 0; i < kHalf; ++i) {
      const double angle = static_cast<double>(position + row) *
                           std::pow(100.0, -2.0 * static_cast<double>(i) / (2.0 * kHalf));
      EXPECT_EQ(tables.cos[row * kHalf + i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(tables.sin[row * kHalf + i], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(RotaryPositions, AnyRun_HasTheRowsOfItsPositions) {
  RotaryPositions positions(Config(64));
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 6}, {40, 3}, {2, 5}, {63, 1}}) {
    const auto tables = positions.Of(first, count);
    ASSERT_TRUE(tables.ok()) << tables.status();
    ExpectRows(*tables, first, count);
  }
}

TEST(RotaryPositions, PositionsThatAreThere_AreNotComputedAgain) {
  RotaryPositions positions(Config(64));
  const auto first = positions.Of(0, 32);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(positions.computed(), 32U);
  const auto second = positions.Of(8, 24);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->cos, first->cos + 8 * 4);
  EXPECT_EQ(second->sin, first->sin + 8 * 4);
  EXPECT_EQ(positions.computed(), 32U);
}

TEST(RotaryPositions, OnePositionMore_ComputesTwiceAsManyUpToTheContext) {
  RotaryPositions positions(Config(70));
  for (const auto& [end, computed] :
       {std::pair<size_t, size_t>{20, 20}, {21, 40}, {40, 40}, {41, 70}, {70, 70}}) {
    ASSERT_TRUE(positions.Of(0, end).ok());
    EXPECT_EQ(positions.computed(), computed) << end;
  }
}

}  // namespace
}  // namespace geminid::trainer
