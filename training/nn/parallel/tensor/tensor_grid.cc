#include "training/nn/parallel/tensor/tensor_grid.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {
namespace {

// The number of ranks of a grid with this side.
int64_t RanksOf(TensorMode mode, int64_t side, int64_t depth) {
  switch (mode) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      return side;
    case TensorMode::k2D:
    case TensorMode::k25D:
      return side * side * depth;
    case TensorMode::k3D:
      return side * side * side;
  }
  return 0;
}

std::vector<MeshAxis> AxesOf(TensorMode mode, int side, int depth) {
  switch (mode) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      return {{"column", side}};
    case TensorMode::k2D:
    case TensorMode::k25D:
      return {{"depth", depth}, {"row", side}, {"column", side}};
    case TensorMode::k3D:
      return {{"output", side}, {"input", side}, {"weight", side}};
  }
  return {};
}

struct LinearLayout {
  ActivationLayout x, y;
  Axes w_rows{}, w_columns{}, bias{};
};

LinearLayout LayoutOf(TensorMode mode, LinearRole role) {
  const bool first = role == LinearRole::kFirst;
  const LinearRole other = first ? LinearRole::kSecond : LinearRole::kFirst;
  LinearLayout layout = {.x = LayoutOfX(mode, role), .y = LayoutOfX(mode, other)};
  switch (mode) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      (first ? layout.w_rows : layout.w_columns) = {GridAxis::kColumn};
      layout.bias = layout.w_rows;
      break;
    case TensorMode::k2D:
    case TensorMode::k25D:
      layout.w_rows = {GridAxis::kColumn};
      layout.w_columns = {GridAxis::kRow};
      layout.bias = {GridAxis::kColumn, GridAxis::kRow};
      break;
    case TensorMode::k3D:
      layout.w_rows = layout.y.features;
      layout.w_rows.push_back(GridAxis::kWeight);
      layout.w_columns = layout.x.features;
      layout.bias = layout.y.features;
      break;
  }
  return layout;
}

}  // namespace

const char* Name(TensorMode mode) {
  switch (mode) {
    case TensorMode::k1D:
      return "1d";
    case TensorMode::k2D:
      return "2d";
    case TensorMode::k25D:
      return "2.5d";
    case TensorMode::k3D:
      return "3d";
    case TensorMode::k1DSequence:
      return "1d-sequence";
  }
  return "?";
}

absl::StatusOr<TensorGrid> TensorGrid::Make(TensorMode mode, int ranks, int depth) {
  if (ranks < 1 || depth < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s tensor parallelism over %d ranks with depth %d: both are at least 1",
                        Name(mode), ranks, depth));
  }
  if (depth != 1 && mode != TensorMode::k25D) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s tensor parallelism has no depth; 2.5d has", Name(mode)));
  }
  int side = 1;
  while (RanksOf(mode, side + 1, depth) <= ranks) ++side;
  if (RanksOf(mode, side, depth) != ranks) {
    const int64_t below = RanksOf(mode, side, depth), above = RanksOf(mode, side + 1, depth);
    const std::string nearest =
        below > ranks ? absl::StrCat(below) : absl::StrCat(below, " or ", above);
    return absl::InvalidArgumentError(
        absl::StrFormat("%d ranks do not make a %s grid%s; the nearest that do are %s", ranks,
                        Name(mode), depth == 1 ? "" : absl::StrCat(" of depth ", depth), nearest));
  }
  GEMINID_ASSIGN_OR_RETURN(auto mesh, Mesh::Make(AxesOf(mode, side, depth), ranks));
  return TensorGrid(mode, side, depth, std::move(mesh));
}

TensorGrid::TensorGrid(TensorMode mode, int side, int depth, Mesh mesh)
    : mode_(mode), side_(side), depth_(depth), mesh_(std::move(mesh)) {}

absl::StatusOr<LinearBlocks> BlocksOf(const TensorGrid& grid, LinearRole role,
                                      const LinearShape& shape, int rank) {
  const auto [tokens, in, out] = shape;
  const LinearLayout layout = LayoutOf(grid.mode(), role);
  const auto piece = [&](const Axes& axes, const char* what, size_t size) {
    return PieceOf(grid, axes, what, size, rank);
  };
  // Checks the finest partition of the outputs first, so that its message names a number that suits
  // all partitions.
  const bool is_bias_finer = Pieces(grid, layout.bias) > Pieces(grid, layout.w_rows);
  const Axes& finest = is_bias_finer ? layout.bias : layout.w_rows;
  LinearBlocks blocks;
  GEMINID_ASSIGN_OR_RETURN(blocks.x.rows, piece(layout.x.tokens, "tokens", tokens));
  GEMINID_ASSIGN_OR_RETURN(blocks.y.rows, piece(layout.y.tokens, "tokens", tokens));
  GEMINID_ASSIGN_OR_RETURN(blocks.x.columns, piece(layout.x.features, "input features", in));
  GEMINID_ASSIGN_OR_RETURN(blocks.w.columns, piece(layout.w_columns, "input features", in));
  GEMINID_RETURN_IF_ERROR(piece(finest, "output features", out).status());
  GEMINID_ASSIGN_OR_RETURN(blocks.bias, piece(layout.bias, "output features", out));
  GEMINID_ASSIGN_OR_RETURN(blocks.w.rows, piece(layout.w_rows, "output features", out));
  GEMINID_ASSIGN_OR_RETURN(blocks.y.columns, piece(layout.y.features, "output features", out));
  return blocks;
}

}  // namespace geminid::collectives
