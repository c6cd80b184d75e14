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

// By name, by family, or, with neither, as `folder` says, the one of --load or the checkpoint to go
// on from; empty: there is none. INVALID_ARGUMENT or NOT_FOUND
// names the flag or the file.
absl::StatusOr<ModelConfig> ParseModel(const Flags& flags, const std::string& folder);

// That a model whose tokens are masked knows by what. INVALID_ARGUMENT says where that can be said.
absl::Status CheckMaskToken(const ModelConfig& model);

// Of `options` the types of weights and norms; after its model.
absl::Status ParseTypes(const Flags& flags, TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_MODEL_FLAGS_H_
