// Reads a model's shape from the config.json of a Hugging Face checkpoint.
#ifndef GEMINID_TRAINING_FORECAST_HF_CONFIG_H_
#define GEMINID_TRAINING_FORECAST_HF_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "training/forecast/model.h"

namespace geminid::forecast {

// `json` is the text of the file, of any family that has a reader (training/models/family.h).
// INVALID_ARGUMENT names the key and what to do instead.
absl::StatusOr<Model> ModelFromHuggingFace(const std::string& json);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_HF_CONFIG_H_
