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
  // Null: always, or where another place refuses it: flags of optimizers, schedules and families.
  bool (*has)(const Flags& flags) = nullptr;
  const char* without = nullptr;  // "--save DIR, where checkpoints are": it does nothing without
  // Where both a script and a hand may well give it: it is said, and the run goes on.
  bool is_said = false;
};

// Every flag has a row.
std::span<const FlagEffect> TrainingEffects();
std::span<const FlagEffect> GeneratingEffects();

// Lines for what is said; INVALID_ARGUMENT names a flag that was `given` and does nothing.
absl::StatusOr<std::vector<std::string>> CheckEffects(
    std::span<const FlagEffect> effects, const Flags& flags,
    const std::function<bool(const std::string& flag)>& given);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_FLAG_EFFECTS_H_
