#include "training/nn/parallel/tensor/parallel_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/training/nn/parallel/tensor/grids.h"
#include "tests/training/nn/parallel/tensor/layer_traffic.h"

namespace geminid::collectives {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A whole embedding: the inputs, and the expected results, one element at a time in float64.
struct Dense {
  EmbeddingShape shape;
  std::vector<int32_t> ids;
  Matrix table, dy;             // rows beyond the vocabulary are NaN and never read
  Matrix y, dtable, magnitude;  // magnitude: sums of the terms' absolute values in dtable

  template <class Draw>
  Dense(const TensorGrid& grid, const EmbeddingShape& given, std::mt19937& random, Draw draw)
      : shape(given),
        table(Drawn(PaddedVocabulary(grid, shape.vocabulary), shape.hidden, draw)),
        dy(Drawn(shape.tokens, shape.hidden, draw)),
        y(shape.tokens, shape.hidden),
        dtable(table.rows, table.columns),
        magnitude(table.rows, table.columns) {
    for (size_t t = 0; t < shape.tokens; ++t) {
      ids.push_back(static_cast<int32_t>(random() % shape.vocabulary));
    }
    std::vector<double> sums(table.elements.size()), sizes(table.elements.size());
    for (size_t t = 0; t < shape.tokens; ++t) {
      for (size_t c = 0; c < shape.hidden; ++c) {
        const auto word = static_cast<size_t>(ids[t]);
        y.at(t, c) = table.at(word, c);
        sums[word * shape.hidden + c] += double{dy.at(t, c)};
        sizes[word * shape.hidden + c] += std::abs(double{dy.at(t, c)});
      }
    }
    dtable.elements.assign(sums.begin(), sums.end());
    magnitude.elements.assign(sizes.begin(), sizes.end());
    for (size_t i = shape.vocabulary * shape.hidden; i < table.elements.size(); ++i) {
      table.elements[i] = kNaN;
    }
  }
};

struct Outcome {
  EmbeddingBlocks blocks;
  std::vector<float> y, dtable;
  uint64_t forward_bytes = 0, backward_bytes = 0;
  int partners = 0;
};

std::vector<Outcome> RunAll(const GridCase& grid, const Dense& dense) {
  std::vector<Outcome> outcomes(static_cast<size_t>(grid.ranks));
  OnGrid(grid, [&](TensorGroups& groups, LinearScratch& scratch) {
    Outcome& outcome = outcomes[static_cast<size_t>(groups.rank())];
    auto layer = ParallelEmbedding::Make(groups, dense.shape, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const EmbeddingBlocks& blocks = outcome.blocks = (*layer)->blocks();
    const std::vector<int32_t> ids = Cut(dense.ids, blocks.ids);
    outcome.y.assign(blocks.y.elements(), kNaN);
    outcome.dtable.assign(blocks.table.elements(), kNaN);
    ASSERT_EQ((*layer)->Forward(ids, Cut(dense.table, blocks.table), outcome.y), absl::OkStatus());
    outcome.forward_bytes = groups.received().bytes;
    ASSERT_EQ((*layer)->Backward(ids, Cut(dense.dy, blocks.y), outcome.dtable), absl::OkStatus());
    outcome.backward_bytes = groups.received().bytes - outcome.forward_bytes;
    outcome.partners = groups.received().partners;
  });
  return outcomes;
}

class ParallelEmbeddingOf : public testing::TestWithParam<GridCase> {
 protected:
  // No grid divides 37 words.
  static constexpr EmbeddingShape kShape = {.tokens = 72, .vocabulary = 37, .hidden = 24};
};

TEST_P(ParallelEmbeddingOf, WholeNumbers_AreTheDenseLayersBitForBit) {
  std::mt19937 random(3);
  const Dense dense(GetParam().grid(), kShape, random, WholeNumbers(random, 8));
  for (const Outcome& rank : RunAll(GetParam(), dense)) {
    EXPECT_EQ(rank.y, Cut(dense.y, rank.blocks.y));
    EXPECT_EQ(rank.dtable, Cut(dense.dtable, rank.blocks.table));
  }
}

// Each word comes from one rank, and the others give zeros: Y has the table's bits. The gradient is
// a sum in another order.
TEST_P(ParallelEmbeddingOf, RandomNumbers_AreTheDenseLayersToRounding) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const Dense dense(GetParam().grid(), kShape, random, [&] { return normal(random); });
  for (const Outcome& rank : RunAll(GetParam(), dense)) {
    EXPECT_EQ(rank.y, Cut(dense.y, rank.blocks.y));
    const std::vector<float> sum = Cut(dense.dtable, rank.blocks.table);
    const std::vector<float> size = Cut(dense.magnitude, rank.blocks.table);
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(rank.dtable[i], sum[i], 0x1p-24 * kShape.tokens * size[i]) << i;
    }
  }
}

TEST_P(ParallelEmbeddingOf, Blocks_CoverTheTableEvenly) {
  const TensorGrid grid = GetParam().grid();
  Matrix held(PaddedVocabulary(grid, kShape.vocabulary), kShape.hidden);
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Block table = BlocksOf(grid, kShape, rank)->table;
    for (size_t r = 0; r < table.rows.count; ++r) {
      for (size_t c = 0; c < table.columns.count; ++c) {
        held.at(table.rows.begin + r, table.columns.begin + c) += 1;
      }
    }
  }
  EXPECT_EQ(held.elements,
            std::vector<float>(held.elements.size(), static_cast<float>(grid.depth())));
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelEmbeddingOf, testing::ValuesIn(AllGrids()),
                         [](const auto& parameter) { return parameter.param.name(); });

class ParallelEmbeddingTraffic : public testing::TestWithParam<GridCase> {};

// Short all-reduces are direct, long ones are sliced: both are counted.
TEST_P(ParallelEmbeddingTraffic, BytesAndPartners_AreTheClosedForms) {
  for (const EmbeddingShape& shape : {EmbeddingShape{72, 37, 24}, EmbeddingShape{576, 600, 144}}) {
    std::mt19937 random(7);
    const TensorGrid grid = GetParam().grid();
    const LayerTraffic expected = TrafficOf(grid, shape);
    const Dense dense(grid, shape, random, WholeNumbers(random, 8));
    for (const Outcome& rank : RunAll(GetParam(), dense)) {
      EXPECT_EQ(static_cast<double>(rank.forward_bytes), expected.forward_elements * sizeof(float));
      EXPECT_EQ(static_cast<double>(rank.backward_bytes),
                expected.backward_elements * sizeof(float));
      EXPECT_EQ(rank.partners, expected.partners);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, ParallelEmbeddingTraffic, testing::ValuesIn(TrafficGrids()),
                         [](const auto& parameter) { return parameter.param.name(); });

TEST(ParallelEmbedding, IdThatIsNoWord_IsRefusedBeforeAnythingIsSent) {
  OnGrid({TensorMode::k1DSequence, 2}, [](TensorGroups& groups, LinearScratch& scratch) {
    auto layer =
        ParallelEmbedding::Make(groups, {.tokens = 2, .vocabulary = 3, .hidden = 4}, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    std::vector<float> table(8), y(8);
    // The table has a fourth row, but it is no word.
    const auto refused = (*layer)->Forward(std::vector<int32_t>{0, 3}, table, y);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(refused.message(), "token 1 has the id 3; the vocabulary has 3 words");
    EXPECT_EQ((*layer)->Backward(std::vector<int32_t>{0, -1}, y, table).message(),
              "token 1 has the id -1; the vocabulary has 3 words");
    EXPECT_EQ((*layer)->Forward(std::vector<int32_t>{0}, table, y).message(),
              "ids has 1 elements; this rank's block of it has 2");
    EXPECT_EQ(groups.received().bytes, 0u);
  });
}

// With equal layouts, tied weights need only one block.
TEST(ParallelEmbedding, TableInLinesAndCubes_LiesAsTheLayerThatMakesLogits) {
  const EmbeddingShape shape = {.tokens = 72, .vocabulary = 37, .hidden = 24};
  for (const GridCase& c : AllGrids()) {
    if (c.mode == TensorMode::k2D || c.mode == TensorMode::k25D) continue;
    const TensorGrid grid = c.grid();
    const LinearShape logits = {
        .tokens = 72, .in = 24, .out = PaddedVocabulary(grid, shape.vocabulary)};
    for (int rank = 0; rank < c.ranks; ++rank) {
      const EmbeddingBlocks blocks = *BlocksOf(grid, shape, rank);
      const LinearBlocks maker = *BlocksOf(grid, LinearRole::kFirst, logits, rank);
      EXPECT_EQ(blocks.table, maker.w) << c << rank;
      EXPECT_EQ(blocks.y, maker.x) << c << rank;
    }
  }
}

TEST(TensorLayout, SizesThatCannotBeCut_AreNamed) {
  const TensorGrid square = *TensorGrid::Make(TensorMode::k2D, 4);
  EXPECT_EQ(BlocksOf(square, EmbeddingShape{.tokens = 4, .vocabulary = 5, .hidden = 3}, 0).status(),
            absl::InvalidArgumentError(
                "3 features cannot be sharded for 2d tensor parallelism over 4 ranks: "
                "they must be divisible by 2"));
}

}  // namespace
}  // namespace geminid::collectives
