// Selects the parameters of a loaded model that training changes: --freeze and --lora-rank.
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

// The engine's description of a parameter.
zero::Parameter AsParameter(const ParameterSpec& spec);

// The engine's descriptions of the model's parameters. `frozen` are patterns for the names of
// parameters that do not change, with *, ? and [...] as in a shell. INVALID_ARGUMENT if a pattern
// fits no name, and if no parameter is left to train.
absl::StatusOr<std::vector<zero::Parameter>> TrainedParameters(
    const ModelConfig& model, const std::vector<std::string>& frozen);

// Whether a parameter belongs to an adapter, by its name.
bool IsAdapter(const std::string& name);
bool IsAdapter(const zero::Parameter& parameter);

// Adds an adapter's product to the values of the adapter's layer, in float64. The layer alone then
// gives the same results. Other parameters do not change. `read` gives a parameter's values.
absl::Status MergeAdapter(
    const ModelConfig& model, zero::ParameterId id,
    const std::function<absl::StatusOr<std::vector<float>>(zero::ParameterId)>& read,
    std::vector<float>* values);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_FINE_TUNING_H_
