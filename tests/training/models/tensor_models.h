// Models, and grids of ranks over which they can be sharded, for tests of sharded layers.
#ifndef GEMINID_TESTS_TRAINING_MODELS_TENSOR_MODELS_H_
#define GEMINID_TESTS_TRAINING_MODELS_TENSOR_MODELS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/tiny_models.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/nn/tensor_parameters.h"

namespace geminid::trainer {

// Grids of every mode.
inline std::vector<collectives::TensorGrid> Grids() {
  using collectives::TensorGrid;
  using collectives::TensorMode;
  return {*TensorGrid::Make(TensorMode::k1D, 2),         *TensorGrid::Make(TensorMode::k1D, 3),
          *TensorGrid::Make(TensorMode::k1DSequence, 4), *TensorGrid::Make(TensorMode::k2D, 4),
          *TensorGrid::Make(TensorMode::k2D, 9),         *TensorGrid::Make(TensorMode::k25D, 2, 2),
          *TensorGrid::Make(TensorMode::k25D, 8, 2),     *TensorGrid::Make(TensorMode::k3D, 8)};
}

// A model that can be sharded over all grids. Neither vocabulary nor positions are divisible.
inline ModelConfig CutGpt2() {
  return {.family = Family::kGpt2,
          .layers = 2,
          .hidden = 72,
          .heads = 12,
          .kv_heads = 12,
          .intermediate = 144,
          .context = 5,
          .vocabulary = 37,
          .positions = 7};
}
inline ModelConfig CutLlama() {
  ModelConfig config = CutGpt2();
  config.family = Family::kLlama;
  config.positions.reset();
  return config;
}
inline std::vector<ModelConfig> CutModels() {
  return {CutGpt2(), Untied(CutGpt2()), CutLlama(), Tied(CutLlama())};
}

// Calls a function for each element of a piece with its index in the whole and in the block.
template <typename Call>
void ForPiece(const BlockRectangle& piece, const Call& call) {
  for (uint64_t row = 0; row < piece.rows; ++row) {
    for (uint64_t column = 0; column < piece.columns; ++column) {
      call(piece.whole_first + row * piece.whole_stride + column,
           piece.block_first + row * piece.block_stride + column);
    }
  }
}

// A block with the values that whole(id) gives for each parameter; zeros elsewhere.
template <typename Element, typename Whole>
std::vector<Element> BlockOf(const TensorBlock& block, const Whole& whole) {
  std::vector<Element> values(block.spec.elements());
  for (const BlockRectangle& piece : block.pieces) {
    const std::span<const Element> from = whole(piece.whole);
    ForPiece(piece, [&](uint64_t there, uint64_t here) { values[here] = from[there]; });
  }
  return values;
}

// The gradients of a rank's blocks are those of the whole model, up to `rounding` times the largest
// gradient of the block's parameters.
inline void ExpectGradients(const TensorParameters& blocks, const DenseParameters& of_rank,
                            const DenseParameters& of_whole, double rounding) {
  for (size_t i = 0; i < blocks.blocks.size(); ++i) {
    const TensorBlock& block = blocks.blocks[i];
    double largest = 0;
    for (const ParameterId id : block.whole) {
      for (const double g : of_whole.gradient(static_cast<size_t>(id))) {
        largest = std::max(largest, std::abs(g));
      }
    }
    const std::vector<double> want = BlockOf<double>(block, [&](ParameterId id) {
      return std::span<const double>(of_whole.gradient(static_cast<size_t>(id)));
    });
    const std::vector<double>& got = of_rank.gradient(i);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_NEAR(got[k], want[k], rounding * largest) << block.spec.name << '[' << k << ']';
    }
  }
}

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TRAINING_MODELS_TENSOR_MODELS_H_
