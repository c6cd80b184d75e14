#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::collectives {
namespace {

// The share that an all-reduce over n ranks receives; a gather or a scatter receives half of it.
double AllReduced(double n) { return 2 * (n - 1) / n; }

LinearTraffic Traffic1D(double side, LinearRole role, double x, double w, double y) {
  const bool first = role == LinearRole::kFirst;
  const double forward = first ? 0 : AllReduced(side) * y;
  const double backward = first ? AllReduced(side) * x : 0;
  return {.forward_elements = forward,
          .backward_elements = backward,
          .forward_sums = forward,
          .backward_sums = backward,
          .saved_elements = first ? x : x / side,
          .weight_elements = w / side,
          .partners = static_cast<int>(side) - 1};
}

LinearTraffic TrafficSequence(double side, LinearRole role, double x, double w, double y) {
  const bool first = role == LinearRole::kFirst;
  const double each = (side - 1) / side;
  return {.forward_elements = each * (first ? x : y),
          .backward_elements = each * (first ? 2 * x : y),
          .forward_sums = first ? 0 : each * y,
          .backward_sums = first ? each * x : 0,
          .saved_elements = x / side,
          .weight_elements = w / side,
          .partners = static_cast<int>(side) - 1};
}

LinearTraffic Traffic2D(double side, double depth, double x, double w) {
  const double product = (side - 1) / (side * side) * (x / depth + w);
  const double over_depth = AllReduced(depth) * w / (side * side);
  return {.forward_elements = product,
          .backward_elements = 2 * product + over_depth,
          .backward_sums = product + over_depth,
          .saved_elements = x / (side * side * depth),
          .weight_elements = w / (side * side),
          .partners = static_cast<int>(2 * (side - 1) + depth - 1)};
}

LinearTraffic Traffic3D(double side, double x, double w, double y) {
  const double cube = side * side * side;
  const double each = (side - 1) / cube;
  return {.forward_elements = each * (x + w + y),
          .backward_elements = each * (2 * x + 2 * w + y),
          .forward_sums = each * y,
          .backward_sums = each * (x + w),
          .saved_elements = x / cube,
          .weight_elements = w / cube,
          .partners = static_cast<int>(3 * (side - 1))};
}

}  // namespace

LinearTraffic TrafficOf(const TensorGrid& grid, LinearRole role, const LinearShape& shape) {
  const auto tokens = static_cast<double>(shape.tokens);
  const auto in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  const double x = tokens * in, w = out * in, y = tokens * out;
  const double side = grid.side(), depth = grid.depth();
  switch (grid.mode()) {
    case TensorMode::k1D:
      return Traffic1D(side, role, x, w, y);
    case TensorMode::k1DSequence:
      return TrafficSequence(side, role, x, w, y);
    case TensorMode::k2D:
    case TensorMode::k25D:
      return Traffic2D(side, depth, x, w);
    case TensorMode::k3D:
      return Traffic3D(side, x, w, y);
  }
  return {};
}

}  // namespace geminid::collectives
