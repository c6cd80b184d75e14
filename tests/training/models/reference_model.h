// The loss of a transformer in float64, written from the papers without any code of the trainer:
// plain loops, one token at a time, parameters found by name.
#ifndef GEMINID_TESTS_TRAINING_MODELS_REFERENCE_MODEL_H_
#define GEMINID_TESTS_TRAINING_MODELS_REFERENCE_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "training/models/model_config.h"

namespace geminid::trainer {

using NamedTensors = std::map<std::string, std::vector<double>>;

// The name beside the parameters of [images, patches, patch_elements]. A sequence of such a model
// begins with the number of its image, and its logits are those of the class token alone.
inline constexpr char kPatches[] = "patches";

// What element `h` of token `t` of all is multiplied by at a place of the model: 0 is the
// embedding, 1 + 2 layer what the layer's attention adds, 2 + 2 layer what its MLP adds.
using Factor = std::function<double(size_t place, size_t t, size_t h)>;

// The sum of the cross-entropy over all tokens of all sequences.
double ReferenceLoss(const ModelConfig& config, const NamedTensors& parameters,
                     const std::vector<std::vector<int32_t>>& sequences,
                     const std::vector<std::vector<int32_t>>& targets, const Factor& factor = {});

// ReferenceLoss plus the routers' balance losses, if there are any. Each sequence adds its number
// of tokens times balance_loss times the mean over the layers of experts sum_e f_e P_e.
double ReferenceObjective(const ModelConfig& config, const NamedTensors& parameters,
                          const std::vector<std::vector<int32_t>>& sequences,
                          const std::vector<std::vector<int32_t>>& targets,
                          const Factor& factor = {});

// The logits at each token, indexed by token and by kind of token.
std::vector<std::vector<double>> ReferenceLogits(const ModelConfig& config,
                                                 const NamedTensors& parameters,
                                                 const std::vector<int32_t>& sequence);

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TRAINING_MODELS_REFERENCE_MODEL_H_
