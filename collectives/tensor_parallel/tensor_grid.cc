#include "collectives/tensor_parallel/tensor_grid.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// The ranks of a grid with this side.
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

// Piece `index` of `total` elements in equal pieces.
Range Piece(size_t total, int pieces, int index) {
  const size_t count = total / static_cast<size_t>(pieces);
  return {static_cast<size_t>(index) * count, count};
}

absl::Status CheckDivisible(const TensorGrid& grid, const char* what, size_t size, int by) {
  if (size > 0 && size % static_cast<size_t>(by) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%d %s cannot be cut for %s tensor parallelism over %d ranks: they must be "
                      "divisible by %d",
                      size, what, Name(grid.mode()), grid.ranks(), by));
}

absl::Status CheckShape(const TensorGrid& grid, LinearRole role, const LinearShape& shape) {
  const int side = grid.side();
  int tokens = 1, in = 1, out = 1;
  switch (grid.mode()) {
    case TensorMode::k1DSequence:
      tokens = side;
      [[fallthrough]];
    case TensorMode::k1D:
      (role == LinearRole::kFirst ? out : in) = side;
      break;
    case TensorMode::k2D:
    case TensorMode::k25D:
      tokens = side * grid.depth();
      in = side;
      out = side * side;  // of the bias
      break;
    case TensorMode::k3D:
      tokens = side * side;
      in = side;
      out = side * side;
      break;
  }
  GEMINID_RETURN_IF_ERROR(CheckDivisible(grid, "tokens", shape.tokens, tokens));
  GEMINID_RETURN_IF_ERROR(CheckDivisible(grid, "input features", shape.in, in));
  return CheckDivisible(grid, "output features", shape.out, out);
}

LinearBlocks Blocks1D(const TensorGrid& grid, LinearRole role, const LinearShape& shape, int rank) {
  const Range tokens = {0, shape.tokens}, in = {0, shape.in}, out = {0, shape.out};
  const bool is_cut = grid.mode() == TensorMode::k1DSequence;
  const Range outside = is_cut ? Piece(shape.tokens, grid.side(), rank) : tokens;
  if (role == LinearRole::kFirst) {
    const Range part = Piece(shape.out, grid.side(), rank);
    return {.x = {outside, in}, .w = {part, in}, .y = {tokens, part}, .bias = part};
  }
  const Range part = Piece(shape.in, grid.side(), rank);
  return {.x = {tokens, part}, .w = {out, part}, .y = {outside, out}, .bias = out};
}

LinearBlocks Blocks2D(const TensorGrid& grid, const LinearShape& shape, int rank) {
  const int side = grid.side();
  const int row = grid.mesh().Coordinate(rank, "row");
  const int column = grid.mesh().Coordinate(rank, "column");
  const int depth = grid.mesh().Coordinate(rank, "depth");
  const Range tokens = Piece(shape.tokens, side * grid.depth(), depth * side + row);
  const Range in = Piece(shape.in, side, column);
  const Range out = Piece(shape.out, side, column);
  return {.x = {tokens, in},
          .w = {out, Piece(shape.in, side, row)},
          .y = {tokens, out},
          .bias = Piece(shape.out, side * side, column * side + row)};
}

LinearBlocks Blocks3D(const TensorGrid& grid, LinearRole role, const LinearShape& shape, int rank) {
  const int side = grid.side();
  const int weight = grid.mesh().Coordinate(rank, "weight");
  int input = grid.mesh().Coordinate(rank, "input");
  int output = grid.mesh().Coordinate(rank, "output");
  if (role == LinearRole::kSecond) std::swap(input, output);
  const Range in = Piece(shape.in, side, output);
  const Range out = Piece(shape.out, side, input);
  return {.x = {Piece(shape.tokens, side * side, weight * side + input), in},
          .w = {Piece(shape.out, side * side, input * side + weight), in},
          .y = {Piece(shape.tokens, side * side, weight * side + output), out},
          .bias = out};
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
  auto mesh = Mesh::Make(AxesOf(mode, side, depth), ranks);
  if (!mesh.ok()) return mesh.status();
  return TensorGrid(mode, side, depth, *std::move(mesh));
}

TensorGrid::TensorGrid(TensorMode mode, int side, int depth, Mesh mesh)
    : mode_(mode), side_(side), depth_(depth), mesh_(std::move(mesh)) {}

absl::StatusOr<LinearBlocks> BlocksOf(const TensorGrid& grid, LinearRole role,
                                      const LinearShape& shape, int rank) {
  GEMINID_RETURN_IF_ERROR(CheckShape(grid, role, shape));
  switch (grid.mode()) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      return Blocks1D(grid, role, shape, rank);
    case TensorMode::k2D:
    case TensorMode::k25D:
      return Blocks2D(grid, shape, rank);
    case TensorMode::k3D:
      return Blocks3D(grid, role, shape, rank);
  }
  return absl::InternalError("a tensor mode that is none");
}

}  // namespace geminid::collectives
