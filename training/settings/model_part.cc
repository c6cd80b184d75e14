#include "training/settings/model_part.h"

#include "training/meshes/stages.h"

namespace geminid::trainer {

double LayerFlopsPerToken(const ModelConfig& config) {
  const double hidden = static_cast<double>(config.hidden);
  const double queries = static_cast<double>(config.query_columns());
  const double kv = static_cast<double>(config.kv_columns());
  const uint64_t window = config.attention_window();
  const auto matrices = static_cast<double>((config.gated_mlp() ? 3 : 2) * config.mlps_per_token());
  const double weights = 2 * hidden * queries + 2 * hidden * kv +
                         matrices * hidden * static_cast<double>(config.intermediate) +
                         hidden * static_cast<double>(config.experts);
  return 6 * weights + 12 * queries * static_cast<double>(window == 0 ? config.context : window);
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
