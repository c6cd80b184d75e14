// The memory of a transformer, in closed form.
#include <algorithm>

#include "base/pages.h"
#include "training/forecast/trainer_need.h"
#include "training/nn/parallel/sequence/ring_attention.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kAlignment = 64;  // of a block of workspace

// The largest group of heads; attention works on the groups one after another
// (attention_sublayer.cc).
struct GroupOfHeads {
  uint64_t heads = 0;
  uint64_t kv_heads = 0;
};

GroupOfHeads LargestGroup(const ModelConfig& config, const Tiling& tiling, uint64_t ranks) {
  const uint64_t queries_per_kv = config.heads / config.kv_heads;
  const uint64_t fitting =
      config.norms_heads()
          ? config.kv_heads
          : std::clamp<uint64_t>(tiling.attention_columns / (queries_per_kv * config.head_dim()), 1,
                                 config.kv_heads);
  const uint64_t kv_heads = std::min(config.kv_heads, base::RoundUp(fitting, ranks));
  return {.heads = kv_heads * queries_per_kv, .kv_heads = kv_heads};
}

}  // namespace

uint64_t RingBytesBound(const ModelConfig& config, zero::DataType data_type,
                        const MicroBatchShape& mine, uint64_t pieces, const Tiling& tiling,
                        size_t threads) {
  constexpr uint64_t kBlocks = 24;
  // fp32 copies of queries and keys, of their counterparts in the output, and of both gradients.
  const uint64_t copies = data_type == zero::DataType::kFloat32 ? 0 : 4;
  const GroupOfHeads group = LargestGroup(config, tiling, /*ranks=*/1);
  const collectives::RingShape shape = {.batch = mine.sequences,
                                        .sequence = mine.sequence_length * pieces,
                                        .heads = group.heads,
                                        .kv_heads = group.kv_heads,
                                        .head_dim = config.head_dim(),
                                        .scale = 1.0F};
  return collectives::RingAttentionBytes(shape, static_cast<int>(pieces),
                                         collectives::RingPass::kBackward, threads) +
         copies * mine.tokens() * (group.heads + group.kv_heads) * config.head_dim() *
             sizeof(float) +
         kBlocks * kAlignment;
}

uint64_t UlyssesExchangeBytesBound(const ModelConfig& config, zero::DataType data_type,
                                   const MicroBatchShape& mine, uint64_t pieces,
                                   const Tiling& tiling) {
  // A send and a receive block for each rank, and fp32 copies of both.
  const uint64_t blocks = data_type == zero::DataType::kFloat32 ? 2 : 4;
  const GroupOfHeads group = LargestGroup(config, tiling, pieces);
  return blocks * (mine.tokens() * group.heads * config.head_dim() * sizeof(float) + kAlignment);
}

uint64_t WorkspaceBytesBound(const ModelConfig& config, zero::DataType data_type,
                             const MicroBatchShape& shape, const Tiling& tiling, size_t threads) {
  return forecast::TrainerWorkspaceBytes(
      {.layers = config.layers,
       .hidden = config.hidden,
       .heads = config.heads,
       .kv_heads = config.kv_heads,
       .head_dim = config.head_dim(),
       .intermediate = config.intermediate,
       .vocabulary = config.logits(),
       .experts = config.routed() ? config.experts : 0,
       .norms_heads = config.norms_heads(),
       .parallel_block = config.parallel(),
       .masks = config.masks(),
       .classifies = config.classifies(),
       .patch_elements = config.image ? config.image->patch_elements() : 0,
       .whole_sequence = config.context,
       .element_bytes = zero::SizeOf(data_type),
       .batch = {shape.sequences, shape.sequence_length},
       .attention_columns = tiling.attention_columns,
       .mlp_columns = tiling.mlp_columns,
       .threads = threads,
       .on_gpu = tiling.for_gpu});
}

uint64_t KeyValueCacheBytes(const ModelConfig& config, zero::DataType data_type, uint64_t tokens) {
  return 2 * config.layers * config.kv_heads * config.head_dim() * zero::SizeOf(data_type) * tokens;
}

uint64_t LaterBytes(const ModelConfig& config, zero::DataType data_type, const ModelPart& part,
                    const MicroBatchShape& shape, uint64_t logit_alignment) {
  const uint64_t hidden = config.hidden;
  // For a sublayer: the inputs of its matrices and the gradients of their outputs.
  const uint64_t queries = config.heads * config.head_dim();
  const uint64_t keys = config.kv_heads * config.head_dim();
  const uint64_t attention = 2 * hidden + 2 * queries + 2 * keys;
  const uint64_t mlp = 2 * hidden + (config.gated_mlp() ? 3 : 2) * config.intermediate;
  const uint64_t logits = base::RoundUp(config.logits(), logit_alignment);
  const uint64_t ends = (part.outputs ? hidden + logits : 0) + (part.embeds ? hidden : 0);
  const uint64_t of_heads = config.norms_heads() ? part.layers * 2 * config.head_dim() : 0;
  const uint64_t norms =
      ((2 * part.layers + (part.outputs ? 1 : 0)) * 2 * hidden + of_heads) * sizeof(float);
  return shape.tokens() * zero::SizeOf(data_type) * (part.layers * (attention + mlp) + ends) +
         norms;
}

uint64_t KeptBytes(const ModelConfig& config, zero::DataType data_type,
                   const MicroBatchShape& shape) {
  const uint64_t element = zero::SizeOf(data_type);
  const uint64_t attention =
      (2 * config.heads + 2 * config.kv_heads) * config.head_dim() * element +
      config.heads * sizeof(float);
  const uint64_t mlp =
      (config.gated_mlp() ? 2 : 1) * config.mlps_per_token() * config.intermediate * element;
  return config.layers * shape.tokens() * (attention + mlp);
}

}  // namespace geminid::trainer
