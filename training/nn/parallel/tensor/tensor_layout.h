// Along which axes of a tensor-parallel grid a matrix is cut, and which block a rank then has. Pure
// arithmetic.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_LAYOUT_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

// 1D has columns; 2D and 2.5D depths, rows and columns; 3D outputs, inputs and weights.
enum class GridAxis : uint8_t { kColumn, kRow, kDepth, kOutput, kInput, kWeight };
inline constexpr int kGridAxes = 6;

// "column" and so on, as the grid's mesh calls them.
const char* Name(GridAxis axis);

// What something is cut along, outermost first. Without any it is whole on every rank.
using Axes = std::vector<GridAxis>;

// The pieces that this makes.
int Pieces(const TensorGrid& grid, const Axes& axes);

// The piece of `size` elements that is `rank`'s. INVALID_ARGUMENT where they cannot be cut evenly;
// `what` names them, as in "tokens".
absl::StatusOr<Range> PieceOf(const TensorGrid& grid, const Axes& axes, const char* what,
                              size_t size, int rank);

// Activations, [tokens, features].
struct ActivationLayout {
  Axes tokens, features;
};

// Of the X of a layer of this role: of a first layer, where activations lie between the pairs; of a
// second one, where they lie within a pair.
ActivationLayout LayoutOfX(TensorMode mode, LinearRole role);

// Of something that has an element for each feature between the pairs, such as the parameters of a
// norm: cut further than the features where the first of these axes gathers it.
struct FeatureLayout {
  Axes pieces;    // that a rank keeps
  Axes gathered;  // over which they make those of its features
  Axes summed;    // over which, beside, gradients are added
};
FeatureLayout LayoutOfFeatures(TensorMode mode);

// The vocabulary with as many words more as make it divisible: of tables, and of the outputs of the
// layer that makes logits. No token names the words beyond; they get no gradient.
size_t PaddedVocabulary(const TensorGrid& grid, size_t vocabulary);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_LAYOUT_H_
