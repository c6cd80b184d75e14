// Decides the number of steps of a run: by --steps, or by --epochs and the data.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_RUN_LENGTH_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_RUN_LENGTH_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/trainer/flags/flags.h"
#include "training/data/token_source.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Called after a checkpoint has filled in flags that were not given: of --steps and --epochs the
// given one decides the length. INVALID_ARGUMENT if both were given.
absl::Status ChooseLength(const std::function<bool(const std::string& flag)>& given, Flags* flags);

// Options with epochs get the number of steps of their epochs over the data, without held-out data;
// other options stay the same. INVALID_ARGUMENT for too many steps, or as CheckResumed.
absl::StatusOr<TrainOptions> WithStepsOf(TrainOptions options, const TokenSource& data);

// For a run that resumes and knows its steps: INVALID_ARGUMENT if it cannot continue from its
// checkpoint or has no step left. Adds differences to the checkpoint to options->resumed->taken.
absl::Status CheckResumed(TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_RUN_LENGTH_H_
