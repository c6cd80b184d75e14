#include "tests/training/nn/parallel/tensor/grids.h"

#include <gtest/gtest.h>

namespace geminid::collectives {

TensorGrid GridCase::grid() const { return *TensorGrid::Make(mode, ranks, depth); }

std::string GridCase::name() const {
  const char* const names[] = {"Line", "Square", "Tesseract", "Cube", "LineOfTokens"};
  std::string name = names[static_cast<size_t>(mode)];
  name += "_Ranks" + std::to_string(ranks);
  return depth == 1 ? name : name + "_Depth" + std::to_string(depth);
}

std::vector<GridCase> AllGrids() {
  return {{TensorMode::k2D, 1},         {TensorMode::k2D, 4},         {TensorMode::k2D, 9},
          {TensorMode::k25D, 2, 2},     {TensorMode::k25D, 8, 2},     {TensorMode::k25D, 12, 3},
          {TensorMode::k3D, 1},         {TensorMode::k3D, 8},         {TensorMode::k1DSequence, 1},
          {TensorMode::k1DSequence, 2}, {TensorMode::k1DSequence, 3}, {TensorMode::k1DSequence, 4}};
}

std::vector<GridCase> TrafficGrids() {
  return {{TensorMode::k2D, 4}, {TensorMode::k2D, 9},         {TensorMode::k25D, 8, 2},
          {TensorMode::k3D, 8}, {TensorMode::k1DSequence, 1}, {TensorMode::k1DSequence, 4}};
}

std::vector<float> Cut(const Matrix& matrix, const Block& block) {
  std::vector<float> cut;
  for (size_t r = 0; r < block.rows.count; ++r) {
    for (size_t c = 0; c < block.columns.count; ++c) {
      cut.push_back(matrix.at(block.rows.begin + r, block.columns.begin + c));
    }
  }
  return cut;
}

void OnGrid(const GridCase& grid,
            const std::function<void(TensorGroups& groups, LinearScratch& scratch)>& body,
            const Backend& backend) {
  Communicators world = backend.connect(grid.ranks, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    auto groups = TensorGroups::Connect(grid.grid(), rank);
    ASSERT_TRUE(groups.ok()) << groups.status();
    LinearScratch scratch;
    body(**groups, scratch);
  });
}

}  // namespace geminid::collectives
