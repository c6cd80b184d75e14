#include "tests/training/nn/parallel/tensor/layer_traffic.h"

#include "geminid/communicator.h"

namespace geminid::collectives {
namespace {

// The elements that a rank receives in an all-reduce of so many elements over n ranks.
double AllReduced(double elements, double n) {
  const bool is_direct = elements * sizeof(float) <= double{kDirectAllReduceBytes};
  return is_direct ? (n - 1) * elements : 2 * (n - 1) / n * elements;
}

}  // namespace

LayerTraffic TrafficOf(const TensorGrid& grid, const EmbeddingShape& shape) {
  const double side = grid.side(), depth = grid.depth();
  const auto features = static_cast<double>(shape.hidden);
  const double y = static_cast<double>(shape.tokens) * features;
  const double table = static_cast<double>(PaddedVocabulary(grid, shape.vocabulary)) * features;
  const double square = side * side, cube = square * side;
  switch (grid.mode()) {
    case TensorMode::k1D:
      return {};
    case TensorMode::k1DSequence:
      return {.forward_elements = (side - 1) / side * y,
              .backward_elements = (side - 1) / side * y,
              .partners = grid.side() - 1};
    case TensorMode::k2D:
    case TensorMode::k25D: {
      const double each = (side - 1) / square * y / depth;
      return {.forward_elements = each,
              .backward_elements = each + AllReduced(table / square, depth),
              .partners = grid.side() - 1 + grid.depth() - 1};
    }
    case TensorMode::k3D: {
      const double each = (side - 1) / cube * (y + table);
      return {
          .forward_elements = each, .backward_elements = each, .partners = 2 * (grid.side() - 1)};
    }
  }
  return {};
}

LayerTraffic TrafficOf(const TensorGrid& grid, const LogitsShape& shape) {
  const ActivationLayout logits = LayoutOfX(grid.mode(), LinearRole::kSecond);
  const double words = Pieces(grid, logits.features);
  const double tokens = static_cast<double>(shape.tokens) / Pieces(grid, logits.tokens);
  LayerTraffic traffic = {
      .forward_elements = AllReduced(tokens, words) + AllReduced(2 * tokens, words),
      .partners = Pieces(grid, logits.features) - 1};
  for (const GridAxis axis : logits.tokens) {
    const int others = Pieces(grid, {axis}) - 1;
    traffic.forward_elements += others * 4;  // two numbers of fp64
    traffic.partners += others;
  }
  return traffic;
}

LayerTraffic TrafficOf(const TensorGrid& grid, const NormOptions& options) {
  const ActivationLayout x = LayoutOfX(grid.mode(), LinearRole::kFirst);
  const FeatureLayout parameter = LayoutOfFeatures(grid.mode());
  const double rows = static_cast<double>(options.tokens) / Pieces(grid, x.tokens);
  const double cut = Pieces(grid, x.features);
  const double kept = static_cast<double>(options.hidden) / Pieces(grid, parameter.pieces);
  const double gathered = (Pieces(grid, parameter.gathered) - 1) * kept;
  const double count = options.kind == NormKind::kRms ? 1 : 2;
  LayerTraffic traffic = {
      .forward_elements = count * AllReduced(rows, cut) + count * gathered,
      .backward_elements = AllReduced(count * rows, cut) + (count + 1) * gathered,
      .partners = Pieces(grid, x.features) - 1 + Pieces(grid, parameter.gathered) - 1};
  for (const GridAxis axis : parameter.summed) {
    traffic.backward_elements += count * AllReduced(kept, Pieces(grid, {axis}));
    traffic.partners += Pieces(grid, {axis}) - 1;
  }
  return traffic;
}

}  // namespace geminid::collectives
