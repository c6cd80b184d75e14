// The axes of a tensor-parallel grid along which a matrix is sharded, and the block of each rank.
// Pure arithmetic.
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

// "column" and so on, as in the grid's mesh.
const char* Name(GridAxis axis);

// The axes along which something is sharded, outermost first. Empty: it is whole on every rank.
using Axes = std::vector<GridAxis>;

// The number of shards.
int Pieces(const TensorGrid& grid, const Axes& axes);

// The shard of `size` elements that `rank` has. INVALID_ARGUMENT if they are not evenly divisible;
// `what` names them, as in "tokens".
absl::StatusOr<Range> PieceOf(const TensorGrid& grid, const Axes& axes, const char* what,
                              size_t size, int rank);

// Activations, [tokens, features].
struct ActivationLayout {
  Axes tokens, features;
};

// The layout of the X of a layer of this role. A first layer's X is between the pairs, and a second
// layer's X is within a pair.
ActivationLayout LayoutOfX(TensorMode mode, LinearRole role);

// The layout of a vector with an element for each feature between the pairs, such as a norm's
// parameter. If `gathered` is not empty, it is sharded further than the features.
struct FeatureLayout {
  Axes pieces;    // the shards that ranks store
  Axes gathered;  // gathering along these gives the elements of a rank's features
  Axes summed;    // gradients are also summed along these
};
FeatureLayout LayoutOfFeatures(TensorMode mode);

// The vocabulary, rounded up so that it is divisible. Tables, and the outputs of the layer that
// computes logits, have this size. No token names a word beyond the vocabulary, and such words get
// no gradient.
size_t PaddedVocabulary(const TensorGrid& grid, size_t vocabulary);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_LAYOUT_H_
