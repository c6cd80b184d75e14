// The parameters of a model whose layers are sharded over a grid of ranks (tensor parallelism): one
// rank's block of each parameter, in the memory layout of checkpoints. Pure.
//
// Layers with a common input are fused into one layer and one block: queries, keys and values; gate
// and up (training/nn/parallel/tensor/fused_outputs.h). A token table that is also the output layer
// is one block, with the embedding's layout.
#ifndef GEMINID_TRAINING_NN_TENSOR_PARAMETERS_H_
#define GEMINID_TRAINING_NN_TENSOR_PARAMETERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "training/models/parameters.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::trainer {

// A rectangle of a block that comes from one parameter.
struct BlockRectangle {
  ParameterId whole{};  // the parameter
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t whole_first = 0;  // the first element in the parameter, and the stride of rows
  uint64_t whole_stride = 0;
  uint64_t block_first = 0;  // the same in the block
  uint64_t block_stride = 0;

  friend bool operator==(const BlockRectangle&, const BlockRectangle&) = default;
};

// One rank's block. Elements in no piece belong to words beyond the vocabulary and are zero.
struct TensorBlock {
  ParameterSpec spec;  // of the block
  // The model's parameters from which the block comes. This rank may have no elements of some.
  std::vector<ParameterId> whole;
  std::vector<BlockRectangle> pieces;
  bool keeps = true;  // no lower rank has the same block
};

// An attention or MLP sublayer: a norm and two linear layers.
struct TensorSublayer {
  NormPlace norm;
  Layout layout = Layout::kOutIn;  // of both matrices
  ParameterId w1{}, w2{};
  std::optional<ParameterId> b1, b2;
  bool joins_heads = false;                 // w1 is AttentionPlaces::qkv
  std::optional<NormPlace> q_norm, k_norm;  // of each head; the same on each rank
  std::vector<ParameterId> all;
};

// Ids are indices of `blocks`. Ids in pieces are those of MakeParameters for the same model and
// part.
struct TensorParameters {
  ModelPart part;
  std::vector<TensorBlock> blocks;  // in order of first use
  ParameterId token_table{};        // like ModelParameters::token_table
  std::optional<ParameterId> position_table;
  std::vector<TensorSublayer> attention, mlp;  // of each layer of the part
  NormPlace final_norm;                    // if the part outputs
  ParameterId output{};                    // if the part outputs

  uint64_t elements() const;
};

// Blocks have the same size on each rank of the grid. INVALID_ARGUMENT names the size that must be
// divisible, and the divisor.
absl::StatusOr<TensorParameters> MakeTensorParameters(const ModelConfig& config,
                                                      const ModelPart& part,
                                                      const collectives::TensorGrid& grid,
                                                      int rank);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_TENSOR_PARAMETERS_H_
