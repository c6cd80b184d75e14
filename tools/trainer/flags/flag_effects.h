// Finds flags that were given and have no effect without another flag.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_FLAG_EFFECTS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_FLAG_EFFECTS_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/trainer/flags/flags.h"

namespace geminid::trainer {

struct FlagEffect {
  const char* flag;
  // Null: always, or other code refuses the flag, as for optimizers, schedules and families.
  bool (*has)(const Flags& flags) = nullptr;
  const char* without = nullptr;  // "--save DIR, the folder of checkpoints": needed for an effect
  // Scripts and users may both give the flag: report that it has no effect, and continue the run.
  bool is_said = false;
};

// Every flag has a row.
std::span<const FlagEffect> TrainingEffects();
std::span<const FlagEffect> GeneratingEffects();

// Returns lines to report; INVALID_ARGUMENT names a flag that was `given` and has no effect.
absl::StatusOr<std::vector<std::string>> CheckEffects(
    std::span<const FlagEffect> effects, const Flags& flags,
    const std::function<bool(const std::string& flag)>& given);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_FLAG_EFFECTS_H_
