// The flags of the model's shape and of its numbers' type.
#ifndef GEMINID_TOOLS_TRAINER_MODEL_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_MODEL_FLAGS_H_

#include <span>

#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "tools/trainer/flags.h"
#include "tools/trainer/model_config.h"
#include "tools/trainer/options.h"

namespace geminid::trainer {

std::span<const FlagSpec> ModelFlags();
inline constexpr FlagSpec kDataTypeFlag = {"--dtype", &Flags::dtype, "TYPE",
                                           "Of weights and activations: bf16 or fp32"};

// By name, by family, or, with neither, as the folder of --load says. INVALID_ARGUMENT or NOT_FOUND
// names the flag or the file.
absl::StatusOr<ModelConfig> ParseModel(const Flags& flags);

absl::StatusOr<zero::DataType> ParseDataType(const Flags& flags);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_MODEL_FLAGS_H_
