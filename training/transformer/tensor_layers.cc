#include "training/transformer/tensor_layers.h"

#include <type_traits>

#include "base/status_macros.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::trainer {

using collectives::GridAxis;
using collectives::TensorGrid;
using collectives::TensorMode;

TensorLayerOptions TensorLayerOptions::Of(const ModelConfig& config, const MicroBatchShape& shape,
                                          const TensorGrid& grid) {
  const bool gpt2 = config.family == Family::kGpt2;
  const size_t tokens = shape.tokens(), hidden = config.hidden;
  return {
      .tokens = {tokens, config.vocabulary, hidden},
      .positions = {tokens, gpt2 ? config.position_rows() : 0, hidden},
      .norm = {.kind = gpt2 ? collectives::NormKind::kLayer : collectives::NormKind::kRms,
               .tokens = tokens,
               .hidden = hidden,
               .epsilon = static_cast<float>(config.norm_epsilon)},
      .attention = {.sequences = shape.sequences,
                    .sequence_length = shape.sequence_length,
                    .hidden = hidden,
                    .heads = config.heads,
                    .kv_heads = config.kv_heads,
                    .head_dim = config.head_dim(),
                    .bias = gpt2,
                    .rotary_theta = gpt2 ? 0 : config.rotary_theta,
                    .rotary_length = config.rotary_scaling.attention_factor,
                    .window = config.attention_window()},
      .mlp = {.activation =
                  gpt2 ? collectives::Activation::kGelu : collectives::Activation::kSwiglu,
              .tokens = tokens,
              .hidden = hidden,
              .inner = config.intermediate,
              .bias = gpt2},
      .logits = {.shape = {tokens, hidden, collectives::PaddedVocabulary(grid, config.vocabulary)}},
      .loss = {tokens, config.vocabulary}};
}

template <typename T>
absl::StatusOr<TensorLayers<T>> TensorLayers<T>::Make(const ModelConfig& config,
                                                      const MicroBatchShape& shape,
                                                      const SequenceSlice& pieces,
                                                      collectives::TensorGroups& groups,
                                                      collectives::LinearScratch& scratch) {
  auto options = TensorLayerOptions::Of(config, shape, groups.grid());
  if (config.rotary_scaling.kind != RotaryScaling::Kind::kNone) {
    options.attention.rotary_angles =
        RotaryAngles(config.head_dim(), config.rotary_theta, config.rotary_scaling);
  }
  options.attention.pieces = pieces.attention;
  for (const Positions::Run& run : pieces.positions.RunsOf(shape.sequence_length)) {
    for (size_t i = 0; i < run.count; ++i) {
      options.attention.positions.push_back(run.position + i);
    }
  }
  const auto make = [&](const auto& of, auto* layer) {
    using Layer = typename std::remove_pointer_t<decltype(layer)>::element_type;
    GEMINID_ASSIGN_OR_RETURN(*layer, Layer::Make(groups, of, scratch));
    return absl::OkStatus();
  };
  TensorLayers layers;
  GEMINID_RETURN_IF_ERROR(make(options.tokens, &layers.tokens));
  if (options.positions.vocabulary > 0) {
    GEMINID_RETURN_IF_ERROR(make(options.positions, &layers.positions));
  }
  GEMINID_RETURN_IF_ERROR(make(options.norm, &layers.norm));
  GEMINID_RETURN_IF_ERROR(make(options.attention, &layers.attention));
  GEMINID_RETURN_IF_ERROR(make(options.mlp, &layers.mlp));
  GEMINID_RETURN_IF_ERROR(make(options.logits, &layers.logits));
  GEMINID_RETURN_IF_ERROR(make(options.loss, &layers.loss));
  return layers;
}
template struct TensorLayers<float>;
template struct TensorLayers<kernels::BFloat16>;

RankAcross::RankAcross(const TensorGrid& grid, int rank) : across_(rank) {
  needed_ = grid.mode() == TensorMode::k2D || grid.mode() == TensorMode::k25D;
  if (!needed_) return;
  const auto at = [&](int of, GridAxis axis) {
    return grid.mesh().Coordinate(of, collectives::Name(axis));
  };
  across_ = 0;
  while (at(across_, GridAxis::kDepth) != at(rank, GridAxis::kDepth) ||
         at(across_, GridAxis::kRow) != at(rank, GridAxis::kColumn) ||
         at(across_, GridAxis::kColumn) != at(rank, GridAxis::kRow)) {
    ++across_;
  }
}

}  // namespace geminid::trainer
