#include "training/settings/tensor_share.h"

#include <algorithm>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/model/attention/attention_parts.h"
#include "training/meshes/axes.h"
#include "training/meshes/meshes.h"
#include "training/nn/parallel/sequence/sequence_parallel_attention.h"
#include "training/nn/parallel/tensor/layer_scratch.h"
#include "training/nn/parallel/tensor/tensor_layout.h"
#include "training/nn/tensor_parameters.h"
#include "training/transformer/tensor_layers.h"

namespace geminid::trainer {
namespace {

using collectives::LinearRole;
using collectives::TensorGrid;

constexpr uint64_t kAlignment = 64;  // of a block of workspace

absl::Status Refuse(const std::string& words) { return parallel::RefuseParallel(words); }

// Elements that one rank has of what lies between the layers, and its rows.
struct Stream {
  uint64_t elements = 0;
  uint64_t rows = 0;
};

Stream StreamOf(const TrainOptions& options, const MicroBatchShape& shape) {
  const TensorGrid grid = GridOf(options.parallel);
  const auto layout = collectives::LayoutOfX(grid.mode(), LinearRole::kFirst);
  const auto pieces = [&](const collectives::Axes& axes) {
    return static_cast<uint64_t>(collectives::Pieces(grid, axes));
  };
  const uint64_t rows = shape.tokens() / pieces(layout.tokens);
  return {.elements = rows * (options.model.hidden / pieces(layout.features)), .rows = rows};
}

// The bytes of what products read.
uint64_t ElementBytes(const TrainOptions& options) { return zero::SizeOf(options.zero.data_type); }
bool IsNarrow(const TrainOptions& options) { return ElementBytes(options) < sizeof(float); }

// What one half keeps beside its input, in bytes: `per_token` of them between its two layers.
uint64_t HalfKeptBytes(const TrainOptions& options, const MicroBatchShape& shape,
                       uint64_t per_token) {
  const Stream stream = StreamOf(options, shape);
  const auto ranks = static_cast<uint64_t>(options.parallel.tensor.size);
  return ElementBytes(options) * stream.elements + sizeof(float) * 2 * stream.rows +
         shape.tokens() * per_token / ranks;
}

uint64_t AttentionKeptBytes(const TrainOptions& options, const MicroBatchShape& shape) {
  const ModelConfig& model = options.model;
  const uint64_t columns = (2 * model.heads + 2 * model.kv_heads) * model.head_dim();
  return HalfKeptBytes(options, shape,
                       ElementBytes(options) * columns + sizeof(float) * model.heads);
}
uint64_t MlpKeptBytes(const TrainOptions& options, const MicroBatchShape& shape) {
  const ModelConfig& model = options.model;
  return HalfKeptBytes(options, shape,
                       ElementBytes(options) * (model.gated_mlp() ? 2 : 1) * model.intermediate);
}

// What the layers take while they run, in bytes: those of a half, the output layer and the loss,
// the tables. Beside each a norm may be the one that takes most.
struct LayerBytes {
  uint64_t half = 0, output = 0, tables = 0;
};

// Of attention over pieces of sequences, on a rank's heads.
collectives::ScratchBytes PiecesOf(const TrainOptions& options, const kernels::AttentionShape& mine,
                                   size_t threads) {
  const int pieces = options.parallel.sequence;
  const auto bytes = [&](collectives::RingPass turn) {
    if (!options.parallel.rings()) {
      return collectives::UlyssesSequenceAttentionBytes(mine, pieces, turn, threads);
    }
    return collectives::RingAttentionBytes({.batch = mine.batch,
                                            .sequence = mine.sequence * static_cast<size_t>(pieces),
                                            .heads = mine.heads,
                                            .kv_heads = mine.kv_heads,
                                            .head_dim = mine.head_dim,
                                            .scale = mine.scale},
                                           pieces, turn, threads);
  };
  return {.forward = bytes(collectives::RingPass::kForward),
          .backward = bytes(collectives::RingPass::kBackward)};
}

LayerBytes LayersOf(const TrainOptions& options, const MicroBatchShape& shape, size_t threads) {
  const TensorGrid grid = GridOf(options.parallel);
  const auto layers = TensorLayerOptions::Of(options.model, shape, grid);
  const auto most = [](const collectives::ScratchBytes& bytes) {
    return std::max(bytes.forward, bytes.backward);
  };
  const collectives::ScratchBytes pieces =
      PiecesOf(options, AttentionOfRank(grid, layers.attention), threads);
  const collectives::ScratchBy by = {.threads = threads,
                                     .element = ElementBytes(options),
                                     .pieces = options.parallel.sequence > 1 ? &pieces : nullptr};
  const uint64_t of_norm = most(ScratchOf(grid, layers.norm));
  return {.half = std::max({most(ScratchOf(grid, layers.attention, by)),
                            most(ScratchOf(grid, layers.mlp, by)), of_norm}),
          .output = std::max({most(ScratchOf(grid, layers.logits, by)), of_norm,
                              most(ScratchOf(grid, layers.loss))}),
          .tables = std::max(
              most(ScratchOf(grid, layers.tokens)),
              layers.positions.vocabulary > 0 ? most(ScratchOf(grid, layers.positions)) : 0)};
}

// What kernels and libraries take on a GPU beside what the host takes: workspaces of products, of
// sums over rows and of tables, what is widened to be added, and attention by a library with its
// test. Attention to pieces of sequences uses no library, and copies sections.
uint64_t GpuScratchBytes(const TrainOptions& options, const MicroBatchShape& shape,
                         uint64_t largest_matrix) {
  constexpr uint64_t kProductBytes = uint64_t{32} << 20, kProductCopies = 8, kRowChunks = 64;
  const ModelConfig& model = options.model;
  const kernels::AttentionShape mine = TensorAttentionShape(options, shape);
  const uint64_t lse = mine.batch * mine.sequence * mine.heads * sizeof(float);
  uint64_t attention = lse;
  if (options.parallel.sequence > 1) {
    attention += mine.batch * mine.sequence * mine.heads * mine.head_dim * ElementBytes(options);
  } else if (IsNarrow(options)) {
    const kernels::AttentionParts parts = kernels::PartsOfAttention(mine);
    if (parts.batch > 0) attention += parts.bytes + kernels::AttentionTestBytes(mine, parts);
  }
  const uint64_t products =
      std::min(kProductBytes, kProductCopies * sizeof(float) * largest_matrix);
  const uint64_t columns = std::max({model.hidden, 2 * model.intermediate,
                                     (model.heads + 2 * model.kv_heads) * model.head_dim()});
  const uint64_t chunks = 2 * kRowChunks * columns * sizeof(float);
  const uint64_t tables = shape.tokens() * (14 + model.hidden * sizeof(float) / kRowChunks);
  const uint64_t positions =
      shape.sequence_length * model.head_dim() * sizeof(float) + shape.tokens() * sizeof(int32_t);
  return attention + products + chunks + tables + positions + sizeof(float) * largest_matrix;
}

// What tensor=1d:N shards.
absl::Status CheckFamilyOfShare(const ModelConfig& model) {
  if (!model.encodes() && !model.routed() && !model.image) return absl::OkStatus();
  return Refuse(absl::StrCat("the family ", Name(model.family),
                             " does not work with tensor yet; take a family of decoders without "
                             "experts, or a pipeline or data in place of tensor"));
}

// What the other modes shard.
absl::Status CheckFamilyOfGrid(const ModelConfig& model) {
  const Family family = model.family;
  if (family != Family::kGpt2 && family != Family::kLlama && family != Family::kMistral) {
    return Refuse(absl::StrCat("the family ", Name(family),
                               " works only with tensor=1d:N yet; take gpt2, llama or mistral, or "
                               "tensor=1d:N"));
  }
  if (model.attention_bias.value_or(false)) {
    return Refuse("a model with attention_bias works only with tensor=1d:N yet; take tensor=1d:N");
  }
  return absl::OkStatus();
}

// A feature that a run does not have yet.
absl::Status CheckFeatures(const TrainOptions& options) {
  const auto not_there = [](const std::string& what, const char* instead) {
    return Refuse(absl::StrCat(what, " does not work with tensor yet; ", instead));
  };
  const ModelConfig& model = options.model;
  GEMINID_RETURN_IF_ERROR(options.parallel.has_grid() ? CheckFamilyOfGrid(model)
                                                      : CheckFamilyOfShare(model));
  if (model.attention_window() > 0 && options.parallel.sequence > 1) {
    return not_there(absl::StrCat("sequence beside a sliding_window of ", model.window, " tokens"),
                     "take one of them, or a --context that is no longer than the window");
  }
  if (options.parallel.chunks > 1) {
    return not_there(absl::StrCat("pipeline=", collectives::Name(options.parallel.schedule)),
                     "give pipeline=N");
  }
  if (std::holds_alternative<zero::MuonOptions>(options.zero.optimizer)) {
    return not_there("--optimizer muon, which needs whole matrices,",
                     "take another optimizer, or a pipeline or data in place of tensor");
  }
  if (options.dropout > 0 && options.parallel.has_grid()) {
    return not_there("--dropout beside another mode than 1d", "leave it out, or take tensor=1d:N");
  }
  if (options.model.lora_rank > 0) return not_there("--lora-rank", "leave it out");
  if (!options.frozen.empty()) return not_there("--freeze", "leave it out");
  return absl::OkStatus();
}

}  // namespace

TensorGrid GridOf(const Parallel& parallel) {
  return *TensorGrid::Make(parallel.tensor.mode, parallel.tensor.size, parallel.tensor.depth);
}

absl::Status CheckTensor(const TrainOptions& options) {
  GEMINID_RETURN_IF_ERROR(CheckFeatures(options));
  GEMINID_RETURN_IF_ERROR(CheckSizes(options));
  const ModelConfig& model = options.model;
  const parallel::TensorAxis& axis = options.parallel.tensor;
  // What is left: the tables and the vectors.
  const auto cut = [&](int ranks) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const TensorGrid grid, TensorGrid::Make(axis.mode, ranks, axis.depth));
    return MakeTensorParameters(model, WholeModel(model), grid, /*rank=*/0).status();
  };
  absl::Status status = cut(axis.size);
  if (status.ok()) return status;
  return parallel::WithNearestSizes(
      Refuse(std::string(status.message())), axis.size, [&](int ranks) { return cut(ranks).ok(); },
      [&](int ranks) {
        return parallel::ToString({.tensor_mode = axis.mode, .tensor = ranks, .depth = axis.depth});
      });
}

absl::Status CheckTensorBatch(const TrainOptions& options, int data) {
  if (options.parallel.tensor.size == 1) return absl::OkStatus();
  const TensorGrid grid = GridOf(options.parallel);
  const uint64_t sequences = options.batch / static_cast<uint64_t>(data);
  const auto check = [&](LinearRole role, const char* what, uint64_t count) {
    return PieceOf(grid, collectives::LayoutOfX(grid.mode(), role).tokens, what, count, /*rank=*/0)
        .status();
  };
  absl::Status status = check(LinearRole::kSecond, "sequences (--batch over data)", sequences);
  if (status.ok()) {
    status = check(
        LinearRole::kFirst, "tokens (--batch over data)",
        sequences * (options.model.context / static_cast<uint64_t>(options.parallel.sequence)));
  }
  if (status.ok()) return status;
  return Refuse(absl::StrCat(std::string(status.message()), "; change --batch, or data"));
}

kernels::AttentionShape TensorAttentionShape(const TrainOptions& options,
                                             const MicroBatchShape& shape) {
  const TensorGrid grid = GridOf(options.parallel);
  return AttentionOfRank(grid, TensorLayerOptions::Of(options.model, shape, grid).attention);
}

uint64_t TensorElements(const TrainOptions& options, const ModelPart& part) {
  return MakeTensorParameters(options.model, part, GridOf(options.parallel), /*rank=*/0)
      ->elements();
}

uint64_t TensorKeptBytes(const TrainOptions& options, uint64_t layers,
                         const MicroBatchShape& shape) {
  return layers * (AttentionKeptBytes(options, shape) + MlpKeptBytes(options, shape));
}

uint64_t TensorStreamBytes(const TrainOptions& options, const MicroBatchShape& shape) {
  return ElementBytes(options) * StreamOf(options, shape).elements;
}

std::vector<uint64_t> TensorItemBytes(const TrainOptions& options, const MicroBatchShape& shape) {
  constexpr uint64_t kBlocks = 4;
  const uint64_t beside = TensorStreamBytes(options, shape) + kBlocks * kAlignment;
  std::vector<uint64_t> bytes;
  for (uint64_t layer = 0; layer < options.model.layers; ++layer) {
    bytes.push_back(AttentionKeptBytes(options, shape) + beside);
    bytes.push_back(MlpKeptBytes(options, shape) + beside);
  }
  return bytes;
}

uint64_t TensorWorkspaceBytes(const TrainOptions& options, uint64_t layers,
                              const MicroBatchShape& shape, size_t threads) {
  const ModelConfig& model = options.model;
  const TensorGrid grid = GridOf(options.parallel);
  const TensorParameters blocks = *MakeTensorParameters(model, WholeModel(model), grid, /*rank=*/0);
  const auto elements = [&](ParameterId id) {
    return blocks.blocks[static_cast<size_t>(id)].spec.elements();
  };
  const uint64_t element = ElementBytes(options);
  // What is added to fp32 numbers where those are not in their place.
  const uint64_t beside = IsNarrow(options) ? sizeof(float) : 0;
  uint64_t largest_block = 0;
  for (const TensorBlock& block : blocks.blocks) {
    largest_block = std::max<uint64_t>(largest_block, block.spec.elements());
  }
  uint64_t largest = 0;  // half: its gradients, and its values turned
  for (const auto* halves : {&blocks.attention, &blocks.mlp}) {
    uint64_t half = 0;
    for (const ParameterId id : halves->front().all) half += elements(id);
    largest = std::max(largest, (sizeof(float) + element) * half);
  }
  const Stream stream = StreamOf(options, shape);
  const uint64_t again = std::max(AttentionKeptBytes(options, shape), MlpKeptBytes(options, shape));
  const uint64_t words = PaddedVocabulary(grid, model.vocabulary);
  const uint64_t logits = shape.tokens() * words / static_cast<uint64_t>(grid.ranks());
  // What the output layer reads, its logits and their gradient, the block of the rank across, and
  // the gradient of both.
  const uint64_t output = (element + sizeof(float)) * stream.elements +
                          sizeof(float) * (4 * stream.rows + logits) +
                          std::min(element, beside) * logits +
                          (sizeof(float) + element + beside) * elements(blocks.output);
  const uint64_t tables =
      (sizeof(float) + beside) * stream.elements +
      (sizeof(float) + beside) * (elements(blocks.token_table) +
                                  (blocks.position_table ? elements(*blocks.position_table) : 0));
  // Inputs and gradients, and one of each in fp32.
  const uint64_t kept = ((2 * layers + 2) * element + sizeof(float) + beside) * stream.elements;
  const LayerBytes scratch = LayersOf(options, shape, threads);
  const uint64_t on_gpu =
      options.wants_gpu
          ? GpuScratchBytes(options, shape, std::max({stream.elements, logits, largest_block}))
          : 0;
  const uint64_t ids = 2 * shape.tokens() * sizeof(int32_t);  // and targets
  return kept + ids + on_gpu +
         std::max(
             {again + largest + scratch.half, output + scratch.output, tables + scratch.tables}) +
         kAlignment * (8 * layers + 48);
}

}  // namespace geminid::trainer
