#include "training/nn/parallel/tensor/tensor_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::collectives {
namespace {

std::string Refusal(TensorMode mode, int ranks, int depth = 1) {
  const auto grid = TensorGrid::Make(mode, ranks, depth);
  EXPECT_EQ(grid.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(grid.status().message());
}

TEST(TensorGrid, RanksThatMakeNoGrid_AreRefusedWithTheNearestThatDo) {
  EXPECT_EQ(Refusal(TensorMode::k2D, 6),
            "6 ranks do not make a 2d grid; the nearest that do are 4 or 9");
  EXPECT_EQ(Refusal(TensorMode::k3D, 10),
            "10 ranks do not make a 3d grid; the nearest that do are 8 or 27");
  EXPECT_EQ(Refusal(TensorMode::k25D, 6, 2),
            "6 ranks do not make a 2.5d grid of depth 2; the nearest that do are 2 or 8");
  EXPECT_EQ(Refusal(TensorMode::k25D, 2, 3),
            "2 ranks do not make a 2.5d grid of depth 3; the nearest that do are 3");
  EXPECT_EQ(Refusal(TensorMode::k1D, 4, 2), "1d tensor parallelism has no depth; 2.5d has");
  EXPECT_NE(Refusal(TensorMode::k1D, 0).find("at least 1"), std::string::npos);
}

TEST(TensorGrid, SizesThatCannotBeCut_AreNamed) {
  const TensorGrid cube = *TensorGrid::Make(TensorMode::k3D, 8);
  EXPECT_EQ(
      BlocksOf(cube, LinearRole::kFirst, {.tokens = 6, .in = 8, .out = 8}, 0).status().message(),
      "6 tokens cannot be sharded for 3d tensor parallelism over 8 ranks: they must be divisible "
      "by 4");
  const TensorGrid line = *TensorGrid::Make(TensorMode::k1D, 4);
  EXPECT_TRUE(BlocksOf(line, LinearRole::kFirst, {.tokens = 1, .in = 1, .out = 4}, 3).ok());
  EXPECT_EQ(
      BlocksOf(line, LinearRole::kSecond, {.tokens = 1, .in = 6, .out = 4}, 3).status().message(),
      "6 input features cannot be sharded for 1d tensor parallelism over 4 ranks: they must be "
      "divisible by 4");
}

// Ranks with consecutive numbers share a row, so rows are within a node.
TEST(TensorGrid, InnermostAxis_IsTheColumn) {
  const TensorGrid grid = *TensorGrid::Make(TensorMode::k25D, 8, 2);
  EXPECT_EQ(grid.side(), 2);
  EXPECT_EQ(grid.mesh().Coordinate(6, "depth"), 1);
  EXPECT_EQ(grid.mesh().Coordinate(6, "row"), 1);
  EXPECT_EQ(grid.mesh().Coordinate(6, "column"), 0);
}

// With a thousand ranks, each talks to 9 along each of three axes, not to 999.
TEST(TensorTraffic, ThousandRanks_HaveTwentySevenPartners) {
  const LinearShape shape = {.tokens = 100, .in = 100, .out = 100};
  const auto cube = TrafficOf(*TensorGrid::Make(TensorMode::k3D, 1000), LinearRole::kFirst, shape);
  EXPECT_EQ(cube.partners, 27);
  EXPECT_DOUBLE_EQ(cube.forward_elements, 0.009 * 3 * 10000);
  const auto line = TrafficOf(*TensorGrid::Make(TensorMode::k1D, 1000), LinearRole::kFirst, shape);
  EXPECT_EQ(line.partners, 999);
  EXPECT_DOUBLE_EQ(line.backward_elements, 2 * 0.999 * 10000);
}

// A row of a table of docs/parallelism.md: the two products of an MLP.
std::string RowOf(TensorMode mode, int ranks, int depth) {
  constexpr size_t kTokens = 32768, kWidth = 12288;
  const TensorGrid grid = *TensorGrid::Make(mode, ranks, depth);
  const auto first = TrafficOf(grid, LinearRole::kFirst, {kTokens, kWidth, 4 * kWidth});
  const auto second = TrafficOf(grid, LinearRole::kSecond, {kTokens, 4 * kWidth, kWidth});
  const auto both = [&](double LinearTraffic::*field) {
    return (first.*field + second.*field) / (1 << 20);
  };
  const char* const names[] = {"1D", "2D", "2.5D, d = ", "3D"};
  return absl::StrFormat(
      "| %d | %s%s | %.1f | %.1f | %.1f | %.1f | %d |\n", ranks, names[static_cast<int>(mode)],
      depth == 1 ? "" : absl::StrCat(depth), both(&LinearTraffic::forward_elements),
      both(&LinearTraffic::backward_elements), both(&LinearTraffic::saved_elements),
      both(&LinearTraffic::weight_elements), first.partners);
}

TEST(TensorTraffic, TableOfThePage_IsComputedFromTheFormulas) {
  std::ifstream file(GEMINID_PARALLELISM_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  std::string table;
  for (const auto& [mode, ranks, depth] :
       {std::tuple(TensorMode::k1D, 8, 1), std::tuple(TensorMode::k25D, 8, 2),
        std::tuple(TensorMode::k3D, 8, 1), std::tuple(TensorMode::k1D, 64, 1),
        std::tuple(TensorMode::k2D, 64, 1), std::tuple(TensorMode::k25D, 64, 4),
        std::tuple(TensorMode::k3D, 64, 1), std::tuple(TensorMode::k1D, 512, 1),
        std::tuple(TensorMode::k25D, 512, 8), std::tuple(TensorMode::k3D, 512, 1),
        std::tuple(TensorMode::k1D, 1000, 1), std::tuple(TensorMode::k25D, 1000, 10),
        std::tuple(TensorMode::k3D, 1000, 1)}) {
    table += RowOf(mode, ranks, depth);
  }
  EXPECT_THAT(page.str(), testing::HasSubstr(table));
}

}  // namespace
}  // namespace geminid::collectives
