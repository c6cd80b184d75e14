#include "tests/kernels/numeric/norm_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/numeric/norm/norm.h"

namespace geminid::kernels::reference {
namespace {

double ToDouble(BFloat16 x) { return x.ToFloat(); }
double ToDouble(float x) { return x; }

template <typename T>
double BlockSum(const T* values, size_t count) {
  double lanes[kNormLanes] = {};
  for (size_t i = 0; i < count; ++i) {
    const double x = ToDouble(values[i]);
    lanes[i % kNormLanes] += x * x;
  }
  for (size_t half = kNormLanes / 2; half != 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// The sum of a whole tree; missing blocks are 0.
double Folded(std::vector<double> tree) {
  while (tree.size() > 1) {
    const size_t half = tree.size() / 2;
    for (size_t i = 0; i < half; ++i) tree[i] += tree[half + i];
    tree.resize(half);
  }
  return tree[0];
}

template <typename T>
double Sum(const T* values, size_t count, double sum) {
  for (size_t begin = 0; begin < count; begin += kNormTree) {
    std::vector<double> tree(kTreeBlocks, 0.0);
    for (size_t b = 0; b < kTreeBlocks && begin + b * kNormBlock < count; ++b) {
      const size_t at = begin + b * kNormBlock;
      tree[b] = BlockSum(values + at, std::min(kNormBlock, count - at));
    }
    sum += Folded(std::move(tree));
  }
  return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
}

}  // namespace

double AddSquares(const BFloat16* values, size_t count, double sum) {
  return Sum(values, count, sum);
}

double AddSquares(const float* values, size_t count, double sum) { return Sum(values, count, sum); }

}  // namespace geminid::kernels::reference
