// The grids for tests of tensor-parallel layers, whole matrices, and the blocks of ranks. Each
// depth and each rank has different data.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_GRIDS_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_GRIDS_H_

#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/collectives/world.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/nn/parallel/tensor/tensor_groups.h"

namespace geminid::collectives {

struct GridCase {
  TensorMode mode;
  int ranks;
  int depth = 1;

  TensorGrid grid() const;
  // A part of a test's name.
  std::string name() const;
  friend std::ostream& operator<<(std::ostream& os, const GridCase& grid) {
    return os << Name(grid.mode) << "_" << grid.ranks << "_" << grid.depth;
  }
};

// Of every mode whose layers are here: one rank, where that is a grid, and several.
std::vector<GridCase> AllGrids();
// Of these the larger ones: what traffic is counted on.
std::vector<GridCase> TrafficGrids();

// Row-major.
struct Matrix {
  size_t rows = 0, columns = 0;
  std::vector<float> elements;

  Matrix() = default;
  Matrix(size_t row_count, size_t column_count)
      : rows(row_count), columns(column_count), elements(row_count * column_count) {}

  float at(size_t row, size_t column) const { return elements[row * columns + column]; }
  float& at(size_t row, size_t column) { return elements[row * columns + column]; }
};

std::vector<float> Cut(const Matrix& matrix, const Block& block);

template <class Element>
std::vector<Element> Cut(const std::vector<Element>& elements, const Range& range) {
  const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(range.begin);
  return {begin, begin + static_cast<std::ptrdiff_t>(range.count)};
}

template <class Draw>
Matrix Drawn(size_t rows, size_t columns, Draw draw) {
  Matrix matrix(rows, columns);
  for (float& element : matrix.elements) element = draw();
  return matrix;
}

// Whole numbers of either sign, at most `limit`.
inline auto WholeNumbers(std::mt19937& random, int limit) {
  return [&random, limit] {
    const auto span = static_cast<uint32_t>(2 * limit + 1);
    return static_cast<float>(static_cast<int>(random() % span) - limit);
  };
}

// Calls `body` on every rank of a grid, each on its own thread.
void OnGrid(const GridCase& grid,
            const std::function<void(TensorGroups& groups, LinearScratch& scratch)>& body,
            const Backend& backend = LocalBackend());

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_GRIDS_H_
