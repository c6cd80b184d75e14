// Which exchanges of the linear layers run during which products. Each named exchange is held until
// another operation has begun on its rank, so a layer that ran them one after another would hang.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "tests/training/nn/parallel/tensor/grids.h"
#include "tests/training/nn/parallel/tensor/held_ranks.h"
#include "training/nn/parallel/tensor/parallel_linear.h"

namespace geminid::collectives {
namespace {

struct OverlapCase {
  const char* name;
  GridCase grid;
  LinearRole role;
  // Products are counted from 1 in each pass.
  Moments::Holds forward, backward;
  Moments::Holds first_row = {};  // also in the backward pass of ranks in the grid's first row
};

void PrintTo(const OverlapCase& c, std::ostream* os) { *os << c.name; }

std::vector<OverlapCase> Cases() {
  return {
      {.name = "OneDimensionOfTokens_GatherOfX_SumOfDx",
       .grid = {TensorMode::k1DSequence, 3},
       .role = LinearRole::kFirst,
       .forward = {},
       .backward = {{"column AllGather 1", "product 1"}, {"column ReduceScatter 1", "product 2"}}},
      // Products 1 to 3 are for dX, and its sums run along the rows, in which ranks differ by
      // column. Products 4 to 6 are for dW.
      {.name = "TwoDimensions_BlocksOfTheNextStep_SumsOfTheStepBefore",
       .grid = {TensorMode::k2D, 9},
       .role = LinearRole::kFirst,
       .forward = {{"column Broadcast 1", "row Broadcast 1"},
                   {"row Broadcast 1", "column Broadcast 1"},
                   {"column Broadcast 2", "product 1"},
                   {"row Broadcast 2", "product 1"},
                   {"column Broadcast 3", "product 2"},
                   {"row Broadcast 3", "product 2"},
                   {"row AllGather 1", "product 3"}},
       .backward = {{"row ReduceScatter 1", "product 1"},
                    {"row Broadcast 2", "product 1"},
                    {"row Broadcast 3", "product 2"},
                    {"column Broadcast 1", "product 1"},
                    {"column Reduce 1", "product 2"},
                    {"column Reduce 2", "product 3"},
                    {"column Reduce 3", "product 4"},
                    {"column Broadcast 2", "product 4"},
                    {"column Broadcast 3", "product 5"},
                    {"row Reduce 1", "product 5"},
                    {"row Reduce 2", "product 6"}}},
      {.name = "TwoAndAHalfDimensions_SumsOverDepth",
       .grid = {TensorMode::k25D, 8, 2},
       .role = LinearRole::kSecond,
       .forward = {},
       .backward = {{"depth AllReduce 1", "product 1"}, {"column Reduce 2", "product 3"}},
       .first_row = {{"depth AllReduce 1", "product 1"}, {"depth AllReduce 2", "product 4"}}},
      {.name = "ThreeDimensions_AllGathers_SumOfDx",
       .grid = {TensorMode::k3D, 8},
       .role = LinearRole::kFirst,
       .forward = {{"input AllGather 1", "weight AllGather 1"},
                   {"weight AllGather 1", "input AllGather 1"}},
       .backward = {{"output AllGather 1", "weight AllGather 1"},
                    {"weight AllGather 1", "output AllGather 1"},
                    {"input AllGather 1", "product 1"},
                    {"weight AllReduce 1", "product 1"},
                    {"input ReduceScatter 1", "product 2"}}},
  };
}

struct Results {
  std::vector<float> y, dx, dw, db;
  friend bool operator==(const Results&, const Results&) = default;
};

class Overlap : public testing::TestWithParam<OverlapCase> {
 protected:
  static constexpr LinearShape kShape = {.tokens = 36, .in = 24, .out = 72};

  // The results of each rank, with or without holds.
  static std::vector<Results> Run(bool held) {
    const OverlapCase& c = GetParam();
    const auto ranks = static_cast<size_t>(c.grid.ranks);
    std::vector<Moments> moments(ranks);
    std::vector<Results> results(ranks);
    Communicators world = LocalBackend().connect(c.grid.ranks, absl::Seconds(60));
    for (size_t rank = 0; rank < ranks; ++rank) {
      world[rank] = HoldRanks(std::move(world[rank]), &moments[rank]);
    }
    ForEachRank(world, [&](Communicator& all) {
      auto groups = TensorGroups::Connect(c.grid.grid(), all);
      ASSERT_TRUE(groups.ok()) << groups.status();
      const auto rank = static_cast<size_t>(all.Rank());
      RunRank(**groups, held ? &moments[rank] : nullptr, results[rank]);
    });
    return results;
  }

 private:
  static Moments::Holds BackwardHolds(TensorGroups& groups) {
    const bool first = !GetParam().first_row.empty() && groups.Along(GridAxis::kRow).Rank() == 0;
    return first ? GetParam().first_row : GetParam().backward;
  }

  static void RunRank(TensorGroups& groups, Moments* moments, Results& results) {
    LinearScratch scratch;
    if (moments != nullptr) {
      scratch.products().Watch(
          [moments] { EXPECT_EQ(moments->Begin("product"), absl::OkStatus()); });
    }
    auto layer = ParallelLinear<float>::Make(
        groups, {.role = GetParam().role, .shape = kShape, .bias = true}, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    std::mt19937 random(static_cast<uint32_t>(groups.rank()));
    std::normal_distribution<float> normal;
    const auto drawn = [&](size_t count) {
      return Drawn(1, count, [&] { return normal(random); });
    };
    const LinearBlocks& blocks = (*layer)->blocks();
    const Matrix x = drawn(blocks.x.elements()), w = drawn(blocks.w.elements());
    const Matrix b = drawn(blocks.bias.count), dy = drawn(blocks.y.elements());
    results.y.resize(blocks.y.elements());
    results.dx.resize(blocks.x.elements());
    results.dw.resize(blocks.w.elements());
    results.db.resize(blocks.bias.count);
    if (moments != nullptr) moments->Restart(GetParam().forward);
    ASSERT_EQ((*layer)->Forward(x.elements, w.elements, b.elements, results.y), absl::OkStatus());
    if (moments != nullptr) moments->Restart(BackwardHolds(groups));
    ASSERT_EQ((*layer)->Backward(x.elements, w.elements, dy.elements,
                                 {.x = results.dx, .w = results.dw, .bias = results.db}),
              absl::OkStatus());
  }
};

TEST_P(Overlap, ExchangesHeldUntilProductsBegin_EndWithTheSameBits) {
  EXPECT_EQ(Run(/*held=*/true), Run(/*held=*/false));
}

INSTANTIATE_TEST_SUITE_P(Modes, Overlap, testing::ValuesIn(Cases()),
                         [](const auto& parameters) { return parameters.param.name; });

}  // namespace
}  // namespace geminid::collectives
