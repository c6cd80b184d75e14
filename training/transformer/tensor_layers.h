// The tensor-parallel layers of a model, for one size of micro-batch. All layers of a kind are
// equal and hold no memory, so one layer of each kind serves the whole model.
#ifndef GEMINID_TRAINING_TRANSFORMER_TENSOR_LAYERS_H_
#define GEMINID_TRAINING_TRANSFORMER_TENSOR_LAYERS_H_

#include <memory>

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

// The slice of each sequence that a grid has: its tokens, and the exchange for attention.
struct SequenceSlice {
  Positions positions = {};
  // Null: sequences are whole; else it outlives the layers.
  collectives::SequenceParallelAttention* attention = nullptr;
};

// The options of the layers. The positions of tokens are not among them.
struct TensorLayerOptions {
  static TensorLayerOptions Of(const ModelConfig& config, const MicroBatchShape& shape,
                               const collectives::TensorGrid& grid);

  collectives::EmbeddingShape tokens;
  collectives::EmbeddingShape positions;  // vocabulary 0: positions are rotary
  collectives::NormOptions norm;
  collectives::AttentionOptions attention;
  collectives::MlpOptions mlp;
  collectives::LinearOptions logits;
  collectives::LogitsShape loss;
};

// T is float or kernels::BFloat16: what products read.
template <typename T>
struct TensorLayers {
  std::unique_ptr<collectives::ParallelEmbedding> tokens;
  std::unique_ptr<collectives::ParallelEmbedding> positions;  // null: positions are rotary
  std::unique_ptr<collectives::ParallelNorm> norm;
  std::unique_ptr<collectives::ParallelAttention<T>> attention;
  std::unique_ptr<collectives::ParallelMlp<T>> mlp;
  std::unique_ptr<collectives::ParallelLinear<T>> logits;
  std::unique_ptr<collectives::ParallelCrossEntropy> loss;

  // `groups` and `scratch` outlive the layers. INVALID_ARGUMENT for the reasons of the layers'
  // Make.
  static absl::StatusOr<TensorLayers> Make(const ModelConfig& config, const MicroBatchShape& shape,
                                           const SequenceSlice& pieces,
                                           collectives::TensorGroups& groups,
                                           collectives::LinearScratch& scratch);
};

// The block of a token table that is also the output layer, in 2D and 2.5D. There the output layer
// needs another block of the table than the embedding: the block of the rank with row and column of
// the grid swapped.
class RankAcross {
 public:
  // Of `rank`.
  RankAcross(const collectives::TensorGrid& grid, int rank);

  // Whether blocks differ. A rank on the grid's diagonal then exchanges with itself.
  bool is_needed() const { return needed_; }
  int rank() const { return across_; }

 private:
  bool needed_ = false;
  int across_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TENSOR_LAYERS_H_
