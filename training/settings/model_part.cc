#include "training/settings/model_part.h"

#include "training/meshes/stages.h"

namespace geminid::trainer {

double LayerFlopsPerToken(const ModelConfig& config) {
  const double hidden = static_cast<double>(config.hidden);
  const double kv = static_cast<double>(config.kv_heads * config.head_dim());
  const auto matrices = static_cast<double>((config.gated_mlp() ? 3 : 2) * config.mlps_per_token());
  const double weights = 2 * hidden * hidden + 2 * hidden * kv +
                         matrices * hidden * static_cast<double>(config.intermediate) +
                         hidden * static_cast<double>(config.experts);
  return 6 * weights + 12 * hidden * static_cast<double>(config.context);
}

double OutputFlopsPerToken(const ModelConfig& config) {
  return 6 * static_cast<double>(config.hidden) * static_cast<double>(config.vocabulary);
}

std::vector<ModelPart> SplitModel(const ModelConfig& config, int stages) {
  const double output_layers = OutputFlopsPerToken(config) / LayerFlopsPerToken(config);
  std::vector<ModelPart> parts;
  for (const auto& range : parallel::SplitLayers(config.layers, output_layers, stages)) {
    parts.push_back({.first_layer = range.first,
                     .layers = range.count,
                     .embeds = range.embeds,
                     .outputs = range.outputs});
  }
  return parts;
}

}  // namespace geminid::trainer
