#include "tests/training/nn/parallel/tensor/blocks.h"

#include <algorithm>

namespace geminid::collectives {

Matrix Rounded(const Wide& wide) {
  Matrix matrix(wide.rows, wide.columns);
  for (size_t i = 0; i < wide.elements.size(); ++i) {
    matrix.elements[i] = static_cast<float>(wide.elements[i]);
  }
  return matrix;
}

Wide LinearForward(const Wide& x, const Wide& w, const Wide& bias) {
  Wide y(x.rows, w.rows);
  for (size_t r = 0; r < y.rows; ++r) {
    for (size_t c = 0; c < y.columns; ++c) {
      if (!bias.elements.empty()) y.at(r, c) = bias.at(0, c);
      for (size_t i = 0; i < x.columns; ++i) y.at(r, c) += x.at(r, i) * w.at(c, i);
    }
  }
  return y;
}

Wide LinearBackwardInput(const Wide& dy, const Wide& w) {
  Wide dx(dy.rows, w.columns);
  for (size_t r = 0; r < dx.rows; ++r) {
    for (size_t i = 0; i < dy.columns; ++i) {
      for (size_t c = 0; c < dx.columns; ++c) dx.at(r, c) += dy.at(r, i) * w.at(i, c);
    }
  }
  return dx;
}

Wide LinearBackwardWeight(const Wide& dy, const Wide& x) {
  Wide dw(dy.columns, x.columns);
  for (size_t t = 0; t < x.rows; ++t) {
    for (size_t r = 0; r < dw.rows; ++r) {
      for (size_t c = 0; c < dw.columns; ++c) dw.at(r, c) += dy.at(t, r) * x.at(t, c);
    }
  }
  return dw;
}

Wide LinearBackwardBias(const Wide& dy) {
  Wide db(1, dy.columns);
  for (size_t t = 0; t < dy.rows; ++t) {
    for (size_t c = 0; c < dy.columns; ++c) db.at(0, c) += dy.at(t, c);
  }
  return db;
}

Matrix FusedRows(const FusedOutputs& outputs, const Matrix& w) {
  Matrix fused(w.rows, w.columns);
  for (size_t r = 0; r < w.rows; ++r) {
    for (size_t c = 0; c < w.columns; ++c) fused.at(r, c) = w.at(outputs.FeatureOf(r), c);
  }
  return fused;
}

Matrix FusedColumns(const FusedOutputs& outputs, const Matrix& bias) {
  Matrix fused(1, bias.columns);
  for (size_t c = 0; c < bias.columns; ++c) fused.at(0, c) = bias.at(0, outputs.FeatureOf(c));
  return fused;
}

namespace {

// Calls expect(name, the rank's value, the expected value, the whole) for each result.
template <class Expect>
void ForEachResult(const BlockResults& want, const BlockOutcome& rank, const Expect& expect) {
  expect("y", rank.y, Cut(want.y, rank.second.y), want.y);
  expect("dx", rank.dx, Cut(want.dx, rank.first.x), want.dx);
  expect("dw1", rank.dw1, Cut(FusedRows(*rank.outputs, want.dw1), rank.first.w), want.dw1);
  expect("dw2", rank.dw2, Cut(want.dw2, rank.second.w), want.dw2);
  expect("db1", rank.db1, Cut(FusedColumns(*rank.outputs, want.db1).elements, rank.first.bias),
         want.db1);
  expect("db2", rank.db2, Cut(want.db2.elements, rank.second.bias), want.db2);
}

}  // namespace

void ExpectEqual(const BlockResults& want, const BlockOutcome& rank) {
  ForEachResult(want, rank, [](const char* name, const auto& got, const auto& part, const Matrix&) {
    EXPECT_EQ(got, part) << name;
  });
}

void ExpectClose(const BlockResults& want, const BlockOutcome& rank) {
  ForEachResult(want, rank,
                [](const char* name, const auto& got, const auto& part, const Matrix& whole) {
                  float largest = 0;
                  for (const float e : whole.elements) largest = std::max(largest, std::abs(e));
                  ASSERT_EQ(got.size(), part.size()) << name;
                  for (size_t i = 0; i < got.size(); ++i) {
                    ASSERT_NEAR(got[i], part[i], 1e-5F * largest) << name << " " << i;
                  }
                });
}

void ExpectTraffic(const GridCase& grid, const LinearShape& first, const LinearShape& second,
                   const BlockOutcome& rank) {
  const LinearTraffic one = TrafficOf(grid.grid(), LinearRole::kFirst, first);
  const LinearTraffic two = TrafficOf(grid.grid(), LinearRole::kSecond, second);
  EXPECT_EQ(static_cast<double>(rank.forward_bytes),
            (one.forward_elements + two.forward_elements) * sizeof(float));
  EXPECT_EQ(static_cast<double>(rank.backward_bytes),
            (one.backward_elements + two.backward_elements) * sizeof(float));
  EXPECT_EQ(rank.partners, std::max(one.partners, two.partners));
}

}  // namespace geminid::collectives
