// The types that the sublayers of a transformer share: the shape of a micro-batch, the tile sizes,
// and the context of a sublayer.
#ifndef GEMINID_TRAINING_NN_BLOCKS_H_
#define GEMINID_TRAINING_NN_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "training/forecast/trainer_need.h"
#include "training/models/model_config.h"
#include "training/nn/dropout.h"
#include "training/nn/positions.h"

namespace geminid::collectives {
class Communicator;
class UlyssesExchange;  // training/nn/parallel/sequence/ulysses_exchange.h
class Memory;    // training/nn/parallel/memory.h
}  // namespace geminid::collectives

namespace geminid::trainer {

// The number of columns or tokens that are computed at a time. Larger numbers give larger matrix
// products and a larger peak of scratch memory. The gradients change only by rounding.
struct Tiling {
  // Query columns, in whole heads, at least one head.
  size_t attention_columns = forecast::kTrainerAttentionColumns;
  size_t mlp_columns = forecast::kTrainerMlpColumns;
  size_t tokens = 128;  // rows of the logits
  bool for_gpu = false;

  // The defaults are for the host, whose caches hold matrices of these sizes. A GPU multiplies
  // whole matrices (forecast::WorkspaceShape::UseGpu).
  static Tiling Of(const ModelConfig& config, bool on_gpu) {
    constexpr size_t kBusy = 2048;  // rows that keep a GPU busy
    if (!on_gpu) return {};
    return {.attention_columns = config.heads * config.head_dim(),
            .mlp_columns = config.intermediate,
            .tokens = kBusy,
            .for_gpu = true};
  }
};

struct MicroBatchShape {
  size_t sequences = 0;
  size_t sequence_length = 0;
  size_t tokens() const { return sequences * sequence_length; }
};

class LayerShare;    // layer_share.h
class SequenceRing;  // sequence_ring.h

// How attention reads the tokens of a sequence that other ranks have: by `swap` or by `ring`. Both
// are null if sequences are whole. Both outlive the objects that get them.
struct SequenceExchange {
  collectives::UlyssesExchange* swap = nullptr;
  SequenceRing* ring = nullptr;
  // Host memory for data that moves between ranks. Null: the workspace, if the host computes.
  collectives::Memory* memory = nullptr;
};

// The tables of rotary positions, [sequence_length, rotary_columns / 2] each: one row for each
// token of a sequence, in order.
struct RotaryTables {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// The rows of the residual stream that have targets, in order; null: every row has one.
struct TargetRows {
  const int32_t* rows = nullptr;
  size_t count = 0;
  uint64_t* right = nullptr;  // MicroBatch::right
};

// The inputs of an attention or MLP sublayer. The sublayers add to a residual stream of [tokens,
// hidden].
struct SublayerContext {
  const ModelConfig* config = nullptr;
  MicroBatchShape shape;
  Tiling tiling;
  RotaryTables rotary = {};   // not GPT-2 and OPT
  DropoutPlace dropout = {};  // of the sublayer's output
  // The sublayer's norm ends the embedding, and the embedding's dropout follows the norm.
  bool drops_norm = false;
  TargetRows targets = {};    // of the output layer
  // The tokens of each sequence that this pass computes. Others were computed before or are on
  // other ranks.
  Positions positions = {};
  SequenceExchange cut = {};  // connects to those ranks
  // Connects to the ranks that have the other shards of each layer; null: layers are whole.
  LayerShare* layers = nullptr;
  // The ranks that have the other experts of each layer; null: this rank has all experts.
  collectives::Communicator* experts = nullptr;
  // The factor of a sequence's balance loss in one layer in the gradient.
  float balance_scale = 0;
  // ModelConfig::expert_capacity for each sequence; 0 if no token is dropped.
  double expert_capacity = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_BLOCKS_H_
