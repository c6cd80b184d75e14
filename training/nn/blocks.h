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
class HeadSwap;  // training/nn/parallel/sequence/head_swap.h
class Memory;    // training/nn/parallel/memory.h
}  // namespace geminid::collectives

namespace geminid::trainer {

// How many columns or tokens are worked on at a time: the peak of scratch memory against the size
// of the matrix products. The gradients do not depend on it beyond rounding.
struct Tiling {
  // Of the queries; whole heads, at least one.
  size_t attention_columns = forecast::kTrainerAttentionColumns;
  size_t mlp_columns = forecast::kTrainerMlpColumns;
  size_t tokens = 128;  // rows of the logits
  bool for_gpu = false;

  // The defaults are for the host, whose caches hold matrices of that size. A GPU multiplies whole
  // ones (forecast::WorkspaceShape::UseGpu).
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

// How attention reaches the tokens of a sequence that other ranks have: one way at most; neither
// where sequences are whole. Both outlive whom they are given to.
struct SequenceCut {
  collectives::HeadSwap* swap = nullptr;
  SequenceRing* ring = nullptr;
  // Of the host, for what travels between ranks; null: the workspace, where the host computes.
  collectives::Memory* memory = nullptr;
};

// The tables of rotary positions, [sequence_length, rotary_columns / 2] each: a row for each token
// of a sequence, in their order.
struct RotaryTables {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

// The rows of the stream that have targets, in their order; null: each token's.
struct TargetRows {
  const int32_t* rows = nullptr;
  size_t count = 0;
};

// What an attention or MLP half works with. The halves add to a residual stream of [tokens,
// hidden].
struct HalfContext {
  const ModelConfig* config = nullptr;
  MicroBatchShape shape;
  Tiling tiling;
  RotaryTables rotary = {};   // not GPT-2 and OPT
  DropoutPlace dropout = {};  // of what the half adds
  bool drops_norm = false;    // the half's norm ends the embedding, whose dropout follows it
  TargetRows targets = {};    // of the output layer
  // Of each sequence, of which other tokens were computed earlier, or are on other ranks.
  Positions positions = {};
  SequenceCut cut = {};  // with those ranks
  // With the ranks that have the other parts of each layer; null: layers are whole.
  LayerShare* layers = nullptr;
  // That have the other experts of each layer; null: all are here.
  collectives::Communicator* experts = nullptr;
  // What a sequence's balance loss in one layer is multiplied by in the gradient.
  float balance_scale = 0;
  // Of each sequence, ModelConfig::expert_capacity; 0 where nothing is dropped.
  double expert_capacity = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_BLOCKS_H_
