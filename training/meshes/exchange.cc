#include "training/meshes/exchange.h"

#include "training/nn/parallel/sequence/exchange_traffic.h"
#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::parallel {
namespace {

using collectives::LinearRole;
using collectives::LinearShape;
using collectives::LinearTraffic;
using collectives::TensorGrid;
using collectives::TensorMode;

// The formulas are linear in |X|, |W| and |Y|. A layer in which one size is nil has two nil
// matrices, so that what is left is the third one's.
struct ByMatrix {
  LinearTraffic x, w, y;
};
ByMatrix Separate(const TensorGrid& grid, LinearRole role, const LinearShape& shape) {
  return {.x = TrafficOf(grid, role, {shape.tokens, shape.in, 0}),
          .w = TrafficOf(grid, role, {0, shape.in, shape.out}),
          .y = TrafficOf(grid, role, {shape.tokens, 0, shape.out})};
}

std::vector<Exchange> Exchanges1D(const TensorGrid& grid, LinearRole role,
                                  const LinearTraffic& traffic) {
  const int others = grid.side() - 1;
  const bool first = role == LinearRole::kFirst;
  Exchange along = {.group = {.stride = 1, .size = grid.side()}};
  along.forward.elements = traffic.forward_elements;
  along.backward.elements = traffic.backward_elements;
  if (grid.mode() == TensorMode::k1DSequence) {
    along.forward.calls = 1;
    along.backward.calls = first ? 2 : 1;  // a gather of X, and the scatter of dX
    along.forward.messages = along.forward.calls * others;
    along.backward.messages = along.backward.calls * others;
  } else {
    Exchange::PassTraffic& reduced = first ? along.backward : along.forward;
    reduced.calls = 1;
    reduced.messages = 2 * others;
  }
  return {along};
}

// X travels along the row, which is of consecutive ranks, W along the column.
std::vector<Exchange> Exchanges2D(const TensorGrid& grid, LinearRole role,
                                  const LinearShape& shape) {
  const int side = grid.side(), depth = grid.depth();
  const ByMatrix traffic = Separate(grid, role, shape);
  // Without the sum over depth, which is of W alone: in a grid of one depth there is none.
  const double w_forward = traffic.w.forward_elements;
  const auto travel = [&](std::int64_t stride, double elements) {
    return Exchange{.group = {.stride = stride, .size = side},
                    .forward = {elements, side - 1, side},
                    .backward = {2 * elements, 2 * (side - 1), 2 * side}};
  };
  std::vector<Exchange> exchanges = {travel(1, traffic.x.forward_elements),
                                     travel(side, w_forward)};
  if (depth > 1) {
    exchanges.push_back(
        {.group = {.stride = std::int64_t{side} * side, .size = depth},
         .backward = {traffic.w.backward_elements - 2 * w_forward, 2 * (depth - 1), 1}});
  }
  return exchanges;
}

// Each matrix along an axis of its own; a second layer exchanges the axes of X and Y.
std::vector<Exchange> Exchanges3D(const TensorGrid& grid, LinearRole role,
                                  const LinearShape& shape) {
  const std::int64_t side = grid.side();
  const int others = grid.side() - 1;
  const ByMatrix traffic = Separate(grid, role, shape);
  const bool first = role == LinearRole::kFirst;
  const auto along = [&](std::int64_t stride, const LinearTraffic& matrix, int backward_calls) {
    return Exchange{
        .group = {.stride = stride, .size = side},
        .forward = {matrix.forward_elements, others, 1},
        .backward = {matrix.backward_elements, backward_calls * others, backward_calls}};
  };
  const std::int64_t input = side, output = side * side;
  return {along(first ? input : output, traffic.x, 2), along(1, traffic.w, 2),
          along(first ? output : input, traffic.y, 1)};
}

}  // namespace

std::vector<Exchange> ExchangesOf(const TensorGrid& grid, LinearRole role,
                                  const LinearShape& shape) {
  if (grid.ranks() == 1) return {};
  switch (grid.mode()) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      return Exchanges1D(grid, role, TrafficOf(grid, role, shape));
    case TensorMode::k2D:
    case TensorMode::k25D:
      return Exchanges2D(grid, role, shape);
    case TensorMode::k3D:
      return Exchanges3D(grid, role, shape);
  }
  return {};
}

Exchange HeadExchangesOf(double elements, const GroupShape& parts) {
  constexpr int kTensors = 4;  // queries, keys, values, and what comes out
  const int ranks = static_cast<int>(parts.size);
  const Exchange::PassTraffic turn = {
      .elements = collectives::HeadExchangeElements(elements, ranks),
      .messages = kTensors * (ranks - 1),
      .calls = kTensors};
  return {.group = parts, .forward = turn, .backward = turn};
}

Exchange RingExchangesOf(double keys, const GroupShape& parts) {
  const int ranks = static_cast<int>(parts.size), others = ranks - 1;
  return {
      .group = parts,
      .forward = {collectives::RingForwardElements(keys, ranks), others, others},
      .backward = {collectives::RingBackwardElements(keys, ranks), others + ranks, others + ranks}};
}

double ScratchElements(const TensorGrid& grid, LinearRole role, const LinearShape& shape) {
  const LinearTraffic own = TrafficOf(grid, role, shape);
  const double x = own.saved_elements, w = own.weight_elements;
  // Y is cut as the X of the layer after it.
  const LinearRole next = role == LinearRole::kFirst ? LinearRole::kSecond : LinearRole::kFirst;
  const double y = TrafficOf(grid, next, {shape.tokens, shape.out, 0}).saved_elements;
  const double side = grid.side();
  switch (grid.mode()) {
    case TensorMode::k1D:
      return 0;
    case TensorMode::k1DSequence:  // what is cut by tokens is gathered
      return grid.side() == 1 ? 0 : role == LinearRole::kFirst ? 2 * side * x : side * y;
    case TensorMode::k2D:
    case TensorMode::k25D:  // this step's blocks and the next's, and a partial sum of dX
      return 2 * (x + w) + x;
    case TensorMode::k3D:  // all three gathered, and dX before it is scattered
      return side * (2 * x + w + y);
  }
  return 0;
}

}  // namespace geminid::parallel
