// The flags of the model's shape and of the data types of weights and norms.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_MODEL_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_MODEL_FLAGS_H_

#include <span>

#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "tools/trainer/flags/flags.h"
#include "training/models/model_config.h"
#include "training/settings/options.h"

namespace geminid::trainer {

std::span<const FlagSpec> ModelFlags();
std::span<const FlagSpec> TypeFlags();

// The model that the flags choose by name or by family. With neither, the model of `folder`, which
// is --load or the checkpoint to continue from; empty: no folder. INVALID_ARGUMENT or NOT_FOUND
// names the flag or the file.
absl::StatusOr<ModelConfig> ParseModel(const Flags& flags, const std::string& folder);

// INVALID_ARGUMENT if a model with masked tokens has no mask token; says which flag gives one.
absl::Status CheckMaskToken(const ModelConfig& model);

// Adds a note if the classifier of a model that loads `folder` begins at random.
void NoteClassifier(const std::string& folder, const ModelConfig& model,
                    std::vector<std::string>* notes);

// Reads the types of weights and norms into `options`, which already has its model.
absl::Status ParseTypes(const Flags& flags, TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_MODEL_FLAGS_H_
