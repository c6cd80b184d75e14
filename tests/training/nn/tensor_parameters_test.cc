#include "training/nn/tensor_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/training/models/tensor_models.h"

namespace geminid::trainer {
namespace {

using collectives::TensorGrid;
using collectives::TensorMode;
using testing::HasSubstr;

TensorParameters Made(const ModelConfig& config, const TensorGrid& grid, int rank) {
  auto made = MakeTensorParameters(config, WholeModel(config), grid, rank);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(MakeTensorParameters, OverAllRanks_KeepEachElementOnce) {
  for (const ModelConfig& config : CutModels()) {
    const std::vector<ParameterSpec> whole = MakeParameters(config).specs;
    for (const TensorGrid& grid : Grids()) {
      std::vector<std::vector<int>> kept;
      for (const ParameterSpec& spec : whole) kept.emplace_back(spec.elements());
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        for (const TensorBlock& block : Made(config, grid, rank).blocks) {
          for (const BlockRectangle& piece : block.pieces) {
            ForPiece(piece, [&](uint64_t element, uint64_t /*here*/) {
              kept[static_cast<size_t>(piece.whole)].at(element) += block.keeps ? 1 : 0;
            });
          }
        }
      }
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(kept[i], std::vector<int>(whole[i].elements(), 1))
            << Name(grid.mode()) << grid.ranks() << whole[i].name;
      }
    }
  }
}

TEST(MakeTensorParameters, OfAnyRank_HaveBlocksOfOneSizeWithoutOverlap) {
  for (const ModelConfig& config : CutModels()) {
    for (const TensorGrid& grid : Grids()) {
      const TensorParameters first = Made(config, grid, 0);
      for (int rank = 0; rank < grid.ranks(); ++rank) {
        const TensorParameters made = Made(config, grid, rank);
        ASSERT_EQ(made.blocks.size(), first.blocks.size());
        for (size_t i = 0; i < made.blocks.size(); ++i) {
          const TensorBlock& block = made.blocks[i];
          EXPECT_EQ(block.spec.shape, first.blocks[i].spec.shape);
          EXPECT_EQ(block.whole, first.blocks[i].whole);
          std::vector<int> taken(block.spec.elements());
          for (const BlockRectangle& piece : block.pieces) {
            ForPiece(piece, [&](uint64_t /*there*/, uint64_t here) { ++taken.at(here); });
          }
          EXPECT_LE(*std::ranges::max_element(taken), 1) << block.spec.name;
        }
      }
    }
  }
}

TEST(MakeTensorParameters, OfTwoRanksInALine_HaveHalfOfEachMatrixAndAllOfTheNorms) {
  const ModelConfig config = CutLlama();
  const TensorParameters made = Made(config, *TensorGrid::Make(TensorMode::k1D, 2), 1);
  const TensorSublayer& attention = made.attention[0];
  const TensorBlock& qkv = made.blocks[static_cast<size_t>(attention.w1)];
  EXPECT_EQ(qkv.spec.shape, (std::vector<int64_t>{3 * 36, 72}));
  EXPECT_EQ(qkv.spec.name,
            "model.layers.0.self_attn.q_proj.weight+model.layers.0.self_attn.k_proj.weight+"
            "model.layers.0.self_attn.v_proj.weight");
  ASSERT_EQ(qkv.pieces.size(), 3);
  for (size_t section = 0; section < 3; ++section) {  // the second half of each section
    EXPECT_EQ(qkv.pieces[section].whole_first, 36 * 72);
    EXPECT_EQ(qkv.pieces[section].block_first, section * 36 * 72);
  }
  EXPECT_EQ(made.blocks[static_cast<size_t>(attention.w2)].spec.shape,
            (std::vector<int64_t>{72, 36}));
  const TensorBlock& norm = made.blocks[static_cast<size_t>(attention.norm.gain)];
  EXPECT_EQ(norm.spec.shape, (std::vector<int64_t>{72}));
  EXPECT_FALSE(norm.keeps);  // the first rank has this block, too
  EXPECT_TRUE(qkv.keeps);
  EXPECT_EQ(made.blocks[static_cast<size_t>(made.output)].spec.shape,
            (std::vector<int64_t>{19, 72}));  // of 37 words, padded to 38
}

TEST(MakeTensorParameters, OfATiedTable_AreOneBlockInEveryMode) {
  for (const TensorGrid& grid : Grids()) {
    const TensorParameters made = Made(CutGpt2(), grid, grid.ranks() - 1);
    EXPECT_EQ(made.output, made.token_table);
    EXPECT_EQ(made.blocks[static_cast<size_t>(made.output)].spec.backward_uses, 2);
  }
}

TEST(MakeTensorParameters, OfAModelThatCannotBeCut_SaysWhatMustBeDivisible) {
  ModelConfig config = CutLlama();
  config.intermediate = 145;
  const auto made =
      MakeTensorParameters(config, WholeModel(config), *TensorGrid::Make(TensorMode::k2D, 4), 0);
  ASSERT_TRUE(absl::IsInvalidArgument(made.status()));
  EXPECT_THAT(std::string(made.status().message()),
              testing::AllOf(HasSubstr("145 features"), HasSubstr("divisible by 2")));
}

}  // namespace
}  // namespace geminid::trainer
