// The parameters of a model whose layers are sharded over a grid of ranks (tensor parallelism): one
// rank's block of each, in the memory layout of checkpoints. Pure.
//
// Layers that make several things of one input are one layer, and one block: queries, keys and
// values; gate and up (training/nn/parallel/tensor/fused_outputs.h). A token table that is also the
// output layer is one block, cut as the embedding cuts it.
#ifndef GEMINID_TRAINING_NN_TENSOR_PARAMETERS_H_
#define GEMINID_TRAINING_NN_TENSOR_PARAMETERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "training/models/parameters.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::trainer {

// Rows of elements that a block has of one parameter.
struct BlockPiece {
  ParameterId whole{};  // which
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t whole_first = 0;  // element of the parameter, and from row to row
  uint64_t whole_stride = 0;
  uint64_t block_first = 0;  // likewise of the block
  uint64_t block_stride = 0;

  friend bool operator==(const BlockPiece&, const BlockPiece&) = default;
};

// What one rank has. Elements that are in no piece are words beyond the vocabulary: zeros.
struct TensorBlock {
  ParameterSpec spec;  // of the block
  // Parameters of the model that it is cut from, of some of which this rank may have nothing.
  std::vector<ParameterId> whole;
  std::vector<BlockPiece> pieces;
  bool keeps = true;  // no rank before this one has the same
};

// Two linear layers with what is between them, after a norm.
struct TensorHalf {
  NormPlace norm;
  Layout layout = Layout::kOutIn;  // of both matrices
  ParameterId w1{}, w2{};
  std::optional<ParameterId> b1, b2;
  std::vector<ParameterId> all;
};

// Ids are indices of `blocks`; those in pieces are of MakeParameters of the same model and part.
struct TensorParameters {
  ModelPart part;
  std::vector<TensorBlock> blocks;  // in order of first use
  ParameterId token_table{};        // as ModelParameters::token_table
  std::optional<ParameterId> position_table;
  std::vector<TensorHalf> attention, mlp;  // of each layer of the part
  NormPlace final_norm;                    // where the part outputs
  ParameterId output{};                    // likewise

  uint64_t elements() const;
};

// Blocks are as large on each rank of the grid. INVALID_ARGUMENT naming the size that must be
// divisible, and by what.
absl::StatusOr<TensorParameters> MakeTensorParameters(const ModelConfig& config,
                                                      const ModelPart& part,
                                                      const collectives::TensorGrid& grid,
                                                      int rank);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_TENSOR_PARAMETERS_H_
