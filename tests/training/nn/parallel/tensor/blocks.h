// Blocks of two layers, such as an MLP, on every rank of a grid: whole inputs and whole expected
// results. The rows of the first W are in the order of its sections.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_BLOCKS_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_BLOCKS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "tests/training/nn/parallel/tensor/grids.h"
#include "training/nn/parallel/tensor/fused_outputs.h"
#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::collectives {

// A float64 matrix for references. Row-major.
struct Wide {
  size_t rows = 0, columns = 0;
  std::vector<double> elements;

  Wide(size_t row_count, size_t column_count)
      : rows(row_count), columns(column_count), elements(row_count * column_count) {}
  explicit Wide(const Matrix& m) : rows(m.rows), columns(m.columns) {
    elements.assign(m.elements.begin(), m.elements.end());
  }
  double& at(size_t row, size_t column) { return elements[row * columns + column]; }
  double at(size_t row, size_t column) const { return elements[row * columns + column]; }
};

Matrix Rounded(const Wide& wide);

// The dense layer, computed one element at a time.
Wide LinearForward(const Wide& x, const Wide& w, const Wide& bias);
Wide LinearBackwardInput(const Wide& dy, const Wide& w);
Wide LinearBackwardWeight(const Wide& dy, const Wide& x);
Wide LinearBackwardBias(const Wide& dy);

// Biases have one row, or are empty if there is none.
struct BlockGiven {
  Matrix x, w1, b1, w2, b2, dy;
};
struct BlockResults {
  Matrix y, dx, dw1, db1, dw2, db2;
};

struct BlockOutcome {
  std::optional<FusedOutputs> outputs;
  LinearBlocks first, second;
  std::vector<float> y, dx, dw1, db1, dw2, db2;
  uint64_t forward_bytes = 0, backward_bytes = 0;
  int partners = 0;
  size_t kept = 0;
};

// A first layer's W or bias in the order of the fused outputs.
Matrix FusedRows(const FusedOutputs& outputs, const Matrix& w);
Matrix FusedColumns(const FusedOutputs& outputs, const Matrix& bias);

void ExpectEqual(const BlockResults& want, const BlockOutcome& rank);
// The tolerance is 1e-5 of the largest element of each matrix.
void ExpectClose(const BlockResults& want, const BlockOutcome& rank);
// Expects the traffic of the two layers.
void ExpectTraffic(const GridCase& grid, const LinearShape& first, const LinearShape& second,
                   const BlockOutcome& rank);

template <class Layer, class Options>
std::vector<BlockOutcome> RunBlock(const GridCase& grid, const Options& options,
                                   const BlockGiven& given) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  std::vector<BlockOutcome> outcomes(static_cast<size_t>(grid.ranks));
  OnGrid(grid, [&](TensorGroups& groups, LinearScratch& scratch) {
    BlockOutcome& out = outcomes[static_cast<size_t>(groups.rank())];
    auto layer = Layer::Make(groups, options, scratch);
    ASSERT_TRUE(layer.ok()) << layer.status();
    const LinearBlocks& first = out.first = (*layer)->first();
    const LinearBlocks& second = out.second = (*layer)->second();
    const FusedOutputs& outputs = out.outputs.emplace((*layer)->outputs());
    const std::vector<float> x = Cut(given.x, first.x), dy = Cut(given.dy, second.y);
    const std::vector<float> w1 = Cut(FusedRows(outputs, given.w1), first.w);
    const std::vector<float> w2 = Cut(given.w2, second.w);
    std::vector<float> b1, b2;
    if (options.bias) {
      b1 = Cut(FusedColumns(outputs, given.b1).elements, first.bias);
      b2 = Cut(given.b2.elements, second.bias);
    }
    out.y.assign(second.y.elements(), kNaN);
    out.dx.assign(x.size(), kNaN);
    out.dw1.assign(w1.size(), kNaN);
    out.db1.assign(b1.size(), kNaN);
    out.dw2.assign(w2.size(), kNaN);
    out.db2.assign(b2.size(), kNaN);
    out.kept = (*layer)->kept();
    std::vector<float> kept(out.kept, kNaN);
    const typename Layer::Parameters parameters = {w1, b1, w2, b2};
    ASSERT_EQ((*layer)->Forward(x, parameters, kept, out.y), absl::OkStatus());
    out.forward_bytes = groups.received().bytes;
    ASSERT_EQ(
        (*layer)->Backward(x, parameters, kept, dy, {out.dx, out.dw1, out.db1, out.dw2, out.db2}),
        absl::OkStatus());
    out.backward_bytes = groups.received().bytes - out.forward_bytes;
    out.partners = groups.received().partners;
  });
  return outcomes;
}

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_BLOCKS_H_
