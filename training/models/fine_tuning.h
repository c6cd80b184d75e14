// Selects the parameters of a loaded model that are trained: --freeze and --lora-rank.
#ifndef GEMINID_TRAINING_MODELS_FINE_TUNING_H_
#define GEMINID_TRAINING_MODELS_FINE_TUNING_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "training/models/model_config.h"
#include "training/models/parameters.h"

namespace geminid::trainer {

// As the engine is told of it.
zero::Parameter AsParameter(const ParameterSpec& spec);

// The model's parameters as the engine is told of them. `frozen` are patterns of names, with *, ?
// and
// [...] as in a shell, for those that keep their values. INVALID_ARGUMENT for a pattern that no
// name fits, and if nothing is left to train.
absl::StatusOr<std::vector<zero::Parameter>> TrainedParameters(
    const ModelConfig& model, const std::vector<std::string>& frozen);

// Whether it belongs to an adapter, by its name.
bool IsAdapter(const std::string& name);
bool IsAdapter(const zero::Parameter& parameter);

// Adds an adapter's product to the values of the layer that it belongs to, in float64, so that the
// layer alone gives the same. Nothing for others. `read` gives a parameter's values.
absl::Status MergeAdapter(
    const ModelConfig& model, zero::ParameterId id,
    const std::function<absl::StatusOr<std::vector<float>>(zero::ParameterId)>& read,
    std::vector<float>* values);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_FINE_TUNING_H_
