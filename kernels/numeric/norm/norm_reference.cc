#include "kernels/numeric/norm/norm_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/numeric/norm/norm.h"

namespace geminid::kernels::reference {
namespace {

double ToDouble(BFloat16 x) { return x.ToFloat(); }
double ToDouble(Float16 x) { return x.ToFloat(); }
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

template <typename T>
double Sum(const T* values, size_t count, double sum) {
  for (size_t begin = 0; begin < count; begin += kNormBlock) {
    sum += BlockSum(values + begin, std::min(kNormBlock, count - begin));
  }
  return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
}

}  // namespace

double AddSquares(const BFloat16* values, size_t count, double sum) {
  return Sum(values, count, sum);
}

double AddSquares(const Float16* values, size_t count, double sum) {
  return Sum(values, count, sum);
}

double AddSquares(const float* values, size_t count, double sum) { return Sum(values, count, sum); }

}  // namespace geminid::kernels::reference
