#include "training/nn/layer_share.h"

#include <algorithm>
#include <optional>

#include "base/status_macros.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::trainer {
namespace {

// The number of elements that pass through host memory at a time.
constexpr size_t kPassingElements = size_t{1} << 20;

LayerShare::Rows RowsOfTable(const ModelParameters& parameters, ParameterId table, int rank,
                             uint64_t whole) {
  const size_t count = static_cast<size_t>(parameters.specs[static_cast<size_t>(table)].shape[0]);
  const size_t first = static_cast<size_t>(rank) * count;
  return {.first = first,
          .count = count,
          .used = whole > first ? std::min<size_t>(count, whole - first) : 0};
}

// Consecutive outputs of a block's matrix, as a linear layer.
LinearPlace Outputs(const TensorParameters& blocks, ParameterId weight,
                    std::optional<ParameterId> bias, Layout layout, uint64_t first,
                    uint64_t count) {
  const std::vector<int64_t>& shape = blocks.blocks[static_cast<size_t>(weight)].spec.shape;
  return {.weight = weight,
          .bias = bias,
          .layout = layout,
          .in = static_cast<uint64_t>(shape[layout == Layout::kOutIn ? 1 : 0]),
          .out = count,
          .stride = static_cast<uint64_t>(shape[1]),
          .first_output = first};
}

}  // namespace

ModelConfig ConfigOfShare(const ModelConfig& whole, int ranks) {
  ModelConfig share = whole;
  const auto parts = static_cast<uint64_t>(ranks);
  share.layer_parts = parts;
  share.heads /= parts;
  share.kv_heads /= parts;
  share.intermediate /= parts;
  return share;
}

ModelParameters ParametersOfBlocks(const ModelConfig& share, const TensorParameters& blocks) {
  ModelParameters made;
  made.part = blocks.part;
  for (const TensorBlock& block : blocks.blocks) made.specs.push_back(block.spec);
  made.token_table = blocks.token_table;
  made.position_table = blocks.position_table;
  made.embedding = {blocks.token_table};
  if (blocks.position_table) made.embedding.push_back(*blocks.position_table);
  const uint64_t queries = share.heads * share.head_dim();
  const uint64_t keys = share.kv_heads * share.head_dim();
  const auto first = [&](const TensorSublayer& sublayer, uint64_t begin, uint64_t count) {
    return Outputs(blocks, sublayer.w1, sublayer.b1, sublayer.layout, begin, count);
  };
  const auto second = [&](const TensorSublayer& sublayer) {
    return Outputs(blocks, sublayer.w2, sublayer.b2, sublayer.layout, 0, share.hidden);
  };
  for (const TensorSublayer& sublayer : blocks.attention) {
    AttentionPlaces& attention = made.attention.emplace_back();
    attention.norm = sublayer.norm;
    if (sublayer.joins_heads) {
      attention.qkv = first(sublayer, 0, queries + 2 * keys);
    } else {
      attention.q = first(sublayer, 0, queries);
      attention.k = first(sublayer, queries, keys);
      attention.v = first(sublayer, queries + keys, keys);
    }
    attention.q_norm = sublayer.q_norm;
    attention.k_norm = sublayer.k_norm;
    attention.output = second(sublayer);
    attention.all = sublayer.all;
  }
  for (const TensorSublayer& sublayer : blocks.mlp) {
    MlpPlaces& mlp = made.mlp.emplace_back();
    mlp.norm = sublayer.norm;
    mlp.activation = share.activation();
    mlp.input = first(sublayer, 0, share.intermediate);
    if (share.gated_mlp()) mlp.up = first(sublayer, share.intermediate, share.intermediate);
    mlp.output = second(sublayer);
    mlp.all = sublayer.all;
  }
  if (!made.part.outputs) return made;
  made.final_norm = blocks.final_norm;
  const auto words = blocks.blocks[static_cast<size_t>(blocks.output)].spec.shape[0];
  made.output =
      Outputs(blocks, blocks.output, std::nullopt, Layout::kOutIn, 0, static_cast<uint64_t>(words));
  return made;
}

LayerShare::LayerShare(const ModelConfig& config, const ModelParameters& parameters,
                       collectives::Communicator* ranks, collectives::Communicator* device,
                       collectives::Memory& memory)
    : ranks_(ranks), device_(device), memory_(memory) {
  const int rank = ranks->Rank();
  if (parameters.part.embeds || parameters.part.outputs) {
    const ParameterId table =
        parameters.part.outputs ? parameters.output.weight : parameters.token_table;
    words_ = RowsOfTable(parameters, table, rank, config.vocabulary);
  }
  if (parameters.position_table) {
    positions_ =
        RowsOfTable(parameters, *parameters.position_table, rank, config.position_table_rows());
  }
}

std::vector<int32_t> LayerShare::TargetsHere(std::span<const int32_t> targets) const {
  std::vector<int32_t> here;
  here.reserve(targets.size());
  for (const int32_t target : targets) {
    const size_t word = static_cast<size_t>(target) - words_.first;  // wraps if the target is below
    const size_t place = std::min(word, words_.used);
    here.push_back(target == kernels::kIgnoredTarget ? target : static_cast<int32_t>(place));
  }
  return here;
}

absl::Status LayerShare::Sum(const Resources& resources, float* values, size_t count) {
  if (resources.math.memory() == ModelKernels::Memory::kHost) {
    const std::span<float> all(values, count);
    return ranks_->AllReduce(all, all, collectives::ReduceOp::kSum);
  }
  if (device_ == nullptr) {
    return collectives::TellIfRefused(*ranks_, SumThroughHost(resources, values, count));
  }
  const KernelsOf<float>& math = KernelsFor<float>(resources);
  float first = 0;  // Download waits for the queued work
  GEMINID_RETURN_IF_ERROR(math.Download(resources, values, sizeof(float), &first));
  constexpr size_t kElements = kDeviceSumBytes / sizeof(float);
  for (size_t at = 0; at < count; at += kElements) {
    const std::span<float> piece(values + at, std::min(kElements, count - at));
    GEMINID_RETURN_IF_ERROR(device_->AllReduce(piece, piece, collectives::ReduceOp::kSum));
  }
  return absl::OkStatus();
}

absl::Status LayerShare::SumThroughHost(const Resources& resources, float* values, size_t count) {
  const KernelsOf<float>& math = KernelsFor<float>(resources);
  GEMINID_ASSIGN_OR_RETURN(const auto passing, collectives::FloatBlock::Allocate(
                                                   memory_, "partial sums of sharded layers",
                                                   std::min(kPassingElements, count)));
  for (size_t at = 0; at < count; at += kPassingElements) {
    const std::span<float> piece = passing.all().first(std::min(kPassingElements, count - at));
    GEMINID_RETURN_IF_ERROR(
        math.Download(resources, values + at, piece.size_bytes(), piece.data()));
    GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(piece, piece, collectives::ReduceOp::kSum));
    GEMINID_RETURN_IF_ERROR(math.Upload(resources, piece.data(), piece.size_bytes(), values + at));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status LayerShare::Sum(const Resources& resources, T* values, size_t count) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  GEMINID_ASSIGN_OR_RETURN(auto wide, Scratch<float>::Allocate(resources, count));
  GEMINID_RETURN_IF_ERROR(math.Widen(resources, values, count, wide.data()));
  GEMINID_RETURN_IF_ERROR(Sum(resources, wide.data(), count));
  return math.Round(resources, wide.data(), count, values);
}
template absl::Status LayerShare::Sum(const Resources&, kernels::BFloat16*, size_t);

absl::StatusOr<std::vector<float>> LayerShare::Gather(std::span<const float> mine) {
  std::vector<float> all(ranks() * mine.size());
  GEMINID_RETURN_IF_ERROR(ranks_->AllGather(mine, all));
  return all;
}

}  // namespace geminid::trainer
