// Decides how long a run is: by --steps, or by --epochs and the data.
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

// After a checkpoint has filled in what was not given: of --steps and --epochs the one that was
// given counts. INVALID_ARGUMENT if both were.
absl::Status ChooseLength(const std::function<bool(const std::string& flag)>& given, Flags* flags);

// The options with the steps of their epochs over the data, without what is held out; the same
// options where they have no epochs. INVALID_ARGUMENT: too many steps, or as CheckResumed.
absl::StatusOr<TrainOptions> WithStepsOf(TrainOptions options, const TokenSource& data);

// Of a run that resumes, once its steps are known: INVALID_ARGUMENT where it cannot go on from its
// checkpoint, or has no step left. Adds what it does otherwise to options->resumed->taken.
absl::Status CheckResumed(TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_RUN_LENGTH_H_
