#include "tools/trainer/flags/run_length.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/trainer/flags/resumed_run.h"
#include "tools/trainer/flags/run_terms.h"
#include "tools/trainer/flags/schedule_flags.h"
#include "training/data/sampling.h"

namespace geminid::trainer {

absl::Status ChooseLength(const std::function<bool(const std::string& flag)>& given, Flags* flags) {
  if (given("--epochs") && given("--steps")) {
    return absl::InvalidArgumentError(
        "--epochs and --steps are both given, and each says how long the run is; leave one out");
  }
  if (given("--steps")) flags->epochs.clear();
  // Otherwise a checkpoint without epochs would be refused because of a flag that nobody gave.
  const bool is_filled = !given("--sampling") && flags->sampling == Name(Sampling::kReplacement);
  if (given("--epochs") && is_filled) flags->sampling.clear();
  return absl::OkStatus();
}

absl::StatusOr<TrainOptions> WithStepsOf(TrainOptions options, const TokenSource& data) {
  if (options.epochs == 0) return options;
  GEMINID_ASSIGN_OR_RETURN(const Split split,
                           SplitTokens(data, options.validation_share, options.model.context));
  GEMINID_ASSIGN_OR_RETURN(
      options.schedule.steps,
      StepsOfEpochs(options.epochs, SamplesIn(split.training, options.model.context),
                    SequencesPerStep(options), kStepsMax));
  if (options.usual_warmup) options.schedule.warmup_steps = UsualWarmup(options.schedule);
  GEMINID_RETURN_IF_ERROR(CheckResumed(&options));
  return options;
}

absl::Status CheckResumed(TrainOptions* options) {
  if (!options->resumed) return absl::OkStatus();
  ResumedRun& resumed = *options->resumed;
  GEMINID_RETURN_IF_ERROR(
      CheckTerms(resumed.checkpoint, resumed.run.terms, TermsOf(*options), &resumed.taken));
  const uint64_t steps = options->schedule.steps;
  if (resumed.step <= steps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options->epochs == 0 ? "--steps is " : "the steps of --epochs are ", steps,
                   ", but '", resumed.checkpoint, "' has ", resumed.step,
                   " steps behind it, so no step is left to train; give --steps at least ",
                   resumed.step, ", or another --save"));
}

}  // namespace geminid::trainer
