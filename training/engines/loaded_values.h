// Loads the values of --load, from a checkpoint or a Hugging Face folder, into a model.
#ifndef GEMINID_TRAINING_ENGINES_LOADED_VALUES_H_
#define GEMINID_TRAINING_ENGINES_LOADED_VALUES_H_

#include <vector>

#include "absl/status/status.h"
#include "geminid/zero.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Reads options.load into the state, with the adapters if the folder has any; adapters that it does
// not have stay as they are. Errors as of checkpoint::LoadValues. INVALID_ARGUMENT too where the
// folder has adapters, layers or an output layer that the model has no place for: they are named.
absl::Status LoadModelValues(const TrainOptions& options, zero::ModelState* state,
                             const std::vector<zero::Parameter>& parameters);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_LOADED_VALUES_H_
