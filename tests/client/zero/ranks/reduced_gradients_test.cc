#include "client/zero/ranks/reduced_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace geminid::zero {
namespace {

class ReducedGradientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    layout_ = *MakeLayout(std::vector<TensorShape>(3, {16384, true}), {.chunk_elements = 16384});
    ASSERT_EQ(layout_.chunks.size(), 3u);
    ASSERT_EQ(layout_.granules, 3u);
  }

  Layout layout_;
};

TEST_F(ReducedGradientsTest, Squares_AreSumsOverAllGranulesUntilTheyAreCleared) {
  ReducedGradients gradients(layout_, 0);
  gradients.SetSquares(layout_.chunks[0], {1});
  gradients.SetSquares(layout_.chunks[2], {4});
  gradients.SetSquares(layout_.chunks[0], {2});
  EXPECT_EQ(gradients.Squares(), 6);
  gradients.ClearSquares();
  EXPECT_EQ(gradients.Squares(), 0);
}

TEST_F(ReducedGradientsTest, OwnSquares_AddUpOverMicroBatchesUntilTheyAreCleared) {
  ReducedGradients gradients(layout_, 0);
  EXPECT_FALSE(gradients.measures_own());
  EXPECT_EQ(gradients.OwnSquares(), 0);
  gradients.MeasureOwn();
  EXPECT_TRUE(gradients.measures_own());
  gradients.AddOwnSquare(2, 4);
  gradients.AddOwnSquare(0, 1);
  gradients.AddOwnSquare(2, 8);
  gradients.SetSquares(layout_.chunks[0], {100});
  EXPECT_EQ(gradients.OwnSquares(), 13);
  gradients.ClearSquares();
  EXPECT_EQ(gradients.OwnSquares(), 0);
  EXPECT_TRUE(gradients.measures_own());
}

TEST_F(ReducedGradientsTest, FirstChunkThatIsNotFinite_IsNamed) {
  ReducedGradients gradients(layout_, 0);
  EXPECT_EQ(gradients.NotFinite(), std::nullopt);
  gradients.SetSquares(layout_.chunks[2], {std::numeric_limits<double>::infinity()});
  gradients.SetSquares(layout_.chunks[1], {std::nan("")});
  EXPECT_EQ(gradients.NotFinite(), 1u);
  EXPECT_TRUE(gradients.IsFinite(layout_.chunks[0]));
  EXPECT_FALSE(gradients.IsFinite(layout_.chunks[2]));
}

TEST_F(ReducedGradientsTest, GranulesThatLand_TakeTurnsAtThePlacesInTheirOrder) {
  ReducedGradients gradients(layout_, 1);
  gradients.Expect(7, 2, /*land=*/true);
  const auto first = gradients.TakeLanding();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->chunk, 7u);
  EXPECT_EQ(first->index, 0u);
  EXPECT_FALSE(gradients.TakeLanding().has_value()) << "its place is taken";
  gradients.FreePlace(first->place);
  EXPECT_EQ(gradients.TakeLanding()->index, 1u);
  gradients.GranuleUpdated();
  EXPECT_FALSE(gradients.NoneOnItsWay());
  gradients.GranuleUpdated();
  EXPECT_TRUE(gradients.NoneOnItsWay());
}

TEST_F(ReducedGradientsTest, GradientThatIsBeingAdded_IsOnItsWay) {
  ReducedGradients gradients(layout_, 0);
  gradients.BeginAdding();
  EXPECT_FALSE(gradients.NoneOnItsWay());
  gradients.EndAdding();
  EXPECT_TRUE(gradients.NoneOnItsWay());
  gradients.Expect(0, 1, /*land=*/false);
  EXPECT_FALSE(gradients.TakeLanding().has_value());
}

}  // namespace
}  // namespace geminid::zero
