#include "tools/trainer/model_part.h"

#include <algorithm>

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
  const auto others = static_cast<uint64_t>(stages - 1);
  // With `last` layers beside the output layer, the others share the rest evenly.
  uint64_t last = config.layers;
  if (others > 0) {
    const auto dearest = [&](uint64_t layers) {
      const uint64_t most = (config.layers - layers + others - 1) / others;
      const double layer = LayerFlopsPerToken(config);
      return std::max(static_cast<double>(most) * layer,
                      static_cast<double>(layers) * layer + OutputFlopsPerToken(config));
    };
    last = 1;
    for (uint64_t layers = 2; layers + others <= config.layers; ++layers) {
      if (dearest(layers) <= dearest(last)) last = layers;
    }
  }
  std::vector<ModelPart> parts;
  uint64_t first = 0;
  for (uint64_t stage = 0; stage < others; ++stage) {
    const uint64_t layers = (config.layers - last - first + others - stage - 1) / (others - stage);
    parts.push_back(
        {.first_layer = first, .layers = layers, .embeds = stage == 0, .outputs = false});
    first += layers;
  }
  parts.push_back({.first_layer = first, .layers = last, .embeds = others == 0, .outputs = true});
  return parts;
}

}  // namespace geminid::trainer
