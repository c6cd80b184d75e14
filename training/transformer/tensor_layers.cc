#include "training/transformer/tensor_layers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::trainer {

using collectives::GridAxis;
using collectives::TensorGrid;
using collectives::TensorMode;

absl::StatusOr<TensorLayers> TensorLayers::Make(const ModelConfig& config,
                                                const MicroBatchShape& shape,
                                                const TensorPieces& pieces,
                                                collectives::TensorGroups& groups,
                                                collectives::LinearScratch& scratch) {
  const bool gpt2 = config.family == Family::kGpt2;
  const size_t tokens = shape.tokens(), hidden = config.hidden;
  TensorLayers layers;
  const auto embedding = [&](size_t words) {
    return collectives::ParallelEmbedding::Make(groups, {tokens, words, hidden}, scratch);
  };
  GEMINID_ASSIGN_OR_RETURN(layers.tokens, embedding(config.vocabulary));
  if (gpt2) {
    GEMINID_ASSIGN_OR_RETURN(layers.positions, embedding(config.position_rows()));
  }
  GEMINID_ASSIGN_OR_RETURN(
      layers.norm, collectives::ParallelNorm::Make(
                       groups,
                       {.kind = gpt2 ? collectives::NormKind::kLayer : collectives::NormKind::kRms,
                        .tokens = tokens,
                        .hidden = hidden,
                        .epsilon = static_cast<float>(config.norm_epsilon)},
                       scratch));
  std::vector<double> angles;
  if (config.rotary_scaling.kind != RotaryScaling::Kind::kNone) {
    angles = RotaryAngles(config.head_dim(), config.rotary_theta, config.rotary_scaling);
  }
  std::vector<size_t> positions;
  for (const Positions::Run& run : pieces.positions.RunsOf(shape.sequence_length)) {
    for (size_t i = 0; i < run.count; ++i) positions.push_back(run.position + i);
  }
  GEMINID_ASSIGN_OR_RETURN(
      layers.attention,
      collectives::ParallelAttention::Make(groups,
                                           {.sequences = shape.sequences,
                                            .sequence_length = shape.sequence_length,
                                            .hidden = hidden,
                                            .heads = config.heads,
                                            .kv_heads = config.kv_heads,
                                            .head_dim = config.head_dim(),
                                            .bias = gpt2,
                                            .rotary_theta = gpt2 ? 0 : config.rotary_theta,
                                            .rotary_angles = std::move(angles),
                                            .rotary_length = config.rotary_scaling.attention_factor,
                                            .window = config.attention_window(),
                                            .pieces = pieces.attention,
                                            .positions = std::move(positions)},
                                           scratch));
  GEMINID_ASSIGN_OR_RETURN(layers.mlp, collectives::ParallelMlp::Make(
                                           groups,
                                           {.activation = gpt2 ? collectives::Activation::kGelu
                                                               : collectives::Activation::kSwiglu,
                                            .tokens = tokens,
                                            .hidden = hidden,
                                            .inner = config.intermediate,
                                            .bias = gpt2},
                                           scratch));
  const size_t words = collectives::PaddedVocabulary(groups.grid(), config.vocabulary);
  GEMINID_ASSIGN_OR_RETURN(layers.logits, collectives::ParallelLinear::Make(
                                              groups, {.shape = {tokens, hidden, words}}, scratch));
  GEMINID_ASSIGN_OR_RETURN(layers.loss, collectives::ParallelCrossEntropy::Make(
                                            groups, {tokens, config.vocabulary}, scratch));
  return layers;
}

TableExchange::TableExchange(const TensorGrid& grid, collectives::Communicator& ranks)
    : ranks_(ranks), across_(ranks.Rank()) {
  needed_ = grid.mode() == TensorMode::k2D || grid.mode() == TensorMode::k25D;
  if (!needed_) return;
  const auto at = [&](int rank, GridAxis axis) {
    return grid.mesh().Coordinate(rank, collectives::Name(axis));
  };
  const int rank = ranks.Rank();
  across_ = 0;
  while (at(across_, GridAxis::kDepth) != at(rank, GridAxis::kDepth) ||
         at(across_, GridAxis::kRow) != at(rank, GridAxis::kColumn) ||
         at(across_, GridAxis::kColumn) != at(rank, GridAxis::kRow)) {
    ++across_;
  }
}

absl::Status TableExchange::Across(std::span<const float> mine, std::span<float> theirs) {
  if (across_ == ranks_.Rank()) {
    std::ranges::copy(mine, theirs.begin());
    return absl::OkStatus();
  }
  return ranks_.SendReceive(mine, across_, theirs, across_);
}

}  // namespace geminid::trainer
