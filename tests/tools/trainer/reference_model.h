// The loss of a transformer in float64, written from the papers and sharing no code with the
// trainer: plain loops, one token at a time, parameters found by name.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_REFERENCE_MODEL_H_
#define GEMINID_TESTS_TOOLS_TRAINER_REFERENCE_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/trainer/model_config.h"

namespace geminid::trainer {

using NamedTensors = std::map<std::string, std::vector<double>>;

// The sum of the cross-entropy over all tokens of all sequences.
double ReferenceLoss(const ModelConfig& config, const NamedTensors& parameters,
                     const std::vector<std::vector<int32_t>>& sequences,
                     const std::vector<std::vector<int32_t>>& targets);

// The logits at each token, by token and kind of token.
std::vector<std::vector<double>> ReferenceLogits(const ModelConfig& config,
                                                 const NamedTensors& parameters,
                                                 const std::vector<int32_t>& sequence);

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_REFERENCE_MODEL_H_
