// The flags of `geminid-train generate`.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_GENERATE_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_GENERATE_FLAGS_H_

#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/trainer/flags/flags.h"
#include "training/settings/options.h"

namespace geminid::trainer {

std::span<const FlagSpec> GenerateFlags();

// Fills data types that are not `given` with those of the run that saved --load. Errors are those
// of reading the run's description.
absl::Status FillTypes(const std::function<bool(const std::string& flag)>& given, Flags* flags);

// INVALID_ARGUMENT or NOT_FOUND names the flag or the file.
absl::StatusOr<GenerateOptions> ReadGenerate(const Flags& flags);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_GENERATE_FLAGS_H_
