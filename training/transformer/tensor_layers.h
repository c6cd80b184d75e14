// The tensor-parallel layers of a model, for one size of micro-batch. Layers of one kind are equal
// and hold no memory, so one of each kind serves the whole model.
#ifndef GEMINID_TRAINING_TRANSFORMER_TENSOR_LAYERS_H_
#define GEMINID_TRAINING_TRANSFORMER_TENSOR_LAYERS_H_

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/models/model_config.h"
#include "training/nn/blocks.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/parallel_attention.h"
#include "training/nn/parallel/tensor/parallel_cross_entropy.h"
#include "training/nn/parallel/tensor/parallel_embedding.h"
#include "training/nn/parallel/tensor/parallel_linear.h"
#include "training/nn/parallel/tensor/parallel_mlp.h"
#include "training/nn/parallel/tensor/parallel_norm.h"
#include "training/nn/positions.h"

namespace geminid::trainer {

// Where a grid has pieces of the sequences: which tokens, and with whom its ranks attend.
struct TensorPieces {
  Positions positions = {};
  collectives::PieceAttention* attention = nullptr;  // null: sequences are whole; else outlives
};

// What the layers are made with, but for where the tokens of a sequence stand in it.
struct TensorLayerOptions {
  static TensorLayerOptions Of(const ModelConfig& config, const MicroBatchShape& shape,
                               const collectives::TensorGrid& grid);

  collectives::EmbeddingShape tokens;
  collectives::EmbeddingShape positions;  // of no words: they are rotary
  collectives::NormOptions norm;
  collectives::AttentionOptions attention;
  collectives::MlpOptions mlp;
  collectives::LinearOptions logits;
  collectives::LogitsShape loss;
};

struct TensorLayers {
  std::unique_ptr<collectives::ParallelEmbedding> tokens;
  std::unique_ptr<collectives::ParallelEmbedding> positions;  // null: they are rotary
  std::unique_ptr<collectives::ParallelNorm> norm;
  std::unique_ptr<collectives::ParallelAttention> attention;
  std::unique_ptr<collectives::ParallelMlp> mlp;
  std::unique_ptr<collectives::ParallelLinear> logits;
  std::unique_ptr<collectives::ParallelCrossEntropy> loss;

  // `groups` and `scratch` outlive the layers. INVALID_ARGUMENT as theirs.
  static absl::StatusOr<TensorLayers> Make(const ModelConfig& config, const MicroBatchShape& shape,
                                           const TensorPieces& pieces,
                                           collectives::TensorGroups& groups,
                                           collectives::LinearScratch& scratch);
};

// A token table that is also the output layer, where the two want different blocks of it: in 2D and
// 2.5D, where a rank's block for the one is, with rows and columns of the grid exchanged, another
// rank's for the other.
class TableExchange {
 public:
  // `ranks`, of the grid, outlives this.
  TableExchange(const collectives::TensorGrid& grid, collectives::Communicator& ranks);

  // Whether blocks are exchanged at all; on the grid's diagonal a rank does so with itself.
  bool is_needed() const { return needed_; }
  // Gives the rank across this one's block, and takes its.
  absl::Status Across(std::span<const float> mine, std::span<float> theirs);

 private:
  collectives::Communicator& ranks_;
  bool needed_ = false;
  int across_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_LAYERS_H_
