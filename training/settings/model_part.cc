#include "training/settings/model_part.h"

#include "training/meshes/stages.h"

namespace geminid::trainer {

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
