// Loads the values of --load, from a checkpoint or a Hugging Face folder, into a model.
#ifndef GEMINID_TRAINING_ENGINES_LOADED_VALUES_H_
#define GEMINID_TRAINING_ENGINES_LOADED_VALUES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Reads options.load into the state, with the folder's adapters if it has any; other adapters stay
// as they are. Errors are those of checkpoint::LoadValues, and INVALID_ARGUMENT for adapters,
// layers or an output layer of the folder that the model does not have: the message names them.
absl::Status LoadModelValues(const TrainOptions& options, zero::ModelState* state,
                             const std::vector<zero::Parameter>& parameters);

// A remark where frozen parameters are held in bf16 and options.load has more bits of them; empty
// otherwise. Trained parameters have fp32 masters and lose nothing. Errors are those of opening it.
absl::StatusOr<std::string> RemarkOfFrozen(const TrainOptions& options,
                                           const std::vector<zero::Parameter>& parameters);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_LOADED_VALUES_H_
