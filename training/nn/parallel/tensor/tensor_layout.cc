#include "training/nn/parallel/tensor/tensor_layout.h"

#include "absl/strings/str_format.h"
#include "base/pages.h"

namespace geminid::collectives {

const char* Name(GridAxis axis) {
  switch (axis) {
    case GridAxis::kColumn:
      return "column";
    case GridAxis::kRow:
      return "row";
    case GridAxis::kDepth:
      return "depth";
    case GridAxis::kOutput:
      return "output";
    case GridAxis::kInput:
      return "input";
    case GridAxis::kWeight:
      return "weight";
  }
  return "?";
}

int Pieces(const TensorGrid& grid, const Axes& axes) {
  int pieces = 1;
  for (const GridAxis axis : axes) pieces *= axis == GridAxis::kDepth ? grid.depth() : grid.side();
  return pieces;
}

absl::StatusOr<Range> PieceOf(const TensorGrid& grid, const Axes& axes, const char* what,
                              size_t size, int rank) {
  const auto pieces = static_cast<size_t>(Pieces(grid, axes));
  if (size == 0 || size % pieces != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d %s cannot be sharded for %s tensor parallelism over %d ranks: they must be "
        "divisible by %d",
        size, what, Name(grid.mode()), grid.ranks(), pieces));
  }
  int index = 0;
  for (const GridAxis axis : axes) {
    index = index * Pieces(grid, {axis}) + grid.mesh().Coordinate(rank, Name(axis));
  }
  const size_t count = size / pieces;
  return Range{static_cast<size_t>(index) * count, count};
}

ActivationLayout LayoutOfX(TensorMode mode, LinearRole role) {
  const bool first = role == LinearRole::kFirst;
  switch (mode) {
    case TensorMode::k1D:
      return {.tokens = {}, .features = first ? Axes{} : Axes{GridAxis::kColumn}};
    case TensorMode::k1DSequence:
      return first ? ActivationLayout{.tokens = {GridAxis::kColumn}, .features = {}}
                   : ActivationLayout{.tokens = {}, .features = {GridAxis::kColumn}};
    case TensorMode::k2D:
    case TensorMode::k25D:
      return {.tokens = {GridAxis::kDepth, GridAxis::kRow}, .features = {GridAxis::kColumn}};
    case TensorMode::k3D:
      return {.tokens = {GridAxis::kWeight, first ? GridAxis::kInput : GridAxis::kOutput},
              .features = {first ? GridAxis::kOutput : GridAxis::kInput}};
  }
  return {};
}

FeatureLayout LayoutOfFeatures(TensorMode mode) {
  switch (mode) {
    case TensorMode::k1D:
      return {};
    case TensorMode::k1DSequence:
      return {.pieces = {}, .gathered = {}, .summed = {GridAxis::kColumn}};
    case TensorMode::k2D:
    case TensorMode::k25D:
      return {.pieces = {GridAxis::kColumn, GridAxis::kRow},
              .gathered = {GridAxis::kRow},
              .summed = {GridAxis::kDepth}};
    case TensorMode::k3D:
      return {.pieces = {GridAxis::kOutput},
              .gathered = {},
              .summed = {GridAxis::kInput, GridAxis::kWeight}};
  }
  return {};
}

size_t PaddedVocabulary(const TensorGrid& grid, size_t vocabulary) {
  const bool is_line = grid.mode() == TensorMode::k1D || grid.mode() == TensorMode::k1DSequence;
  const auto side = static_cast<size_t>(grid.side());
  const size_t multiple = is_line ? side : side * side;
  return base::RoundUp(vocabulary, multiple);
}

}  // namespace geminid::collectives
