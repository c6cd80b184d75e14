#include "training/settings/idle_flags.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "training/models/fine_tuning.h"

namespace geminid::trainer {
namespace {

// Of patterns beside adapters, which freeze the model themselves: those that fit no adapter.
std::vector<std::string> IdlePatterns(const TrainOptions& options) {
  std::vector<std::string> idle;
  if (options.model.lora_rank == 0) return idle;
  const auto trained = TrainedParameters(options.model, {});
  if (!trained.ok()) return idle;
  for (const std::string& pattern : options.frozen) {
    const bool fits = std::ranges::any_of(*trained, [&](const zero::Parameter& parameter) {
      return parameter.trainable && ::fnmatch(pattern.c_str(), parameter.name.c_str(), 0) == 0;
    });
    if (!fits) idle.push_back(pattern);
  }
  return idle;
}

}  // namespace

std::vector<std::string> IdleFlags(const TrainOptions& options, uint64_t samples_per_epoch) {
  const Schedule& schedule = options.schedule;
  const std::string in_run = absl::StrCat(" in a run of ", base::Counted(schedule.steps, "step"));
  std::vector<std::string> lines;
  const auto say = [&](const char* flag, const auto& value, const auto&... words) {
    if (std::ranges::find(options.given, flag) == options.given.end()) return;
    lines.push_back(absl::StrCat(flag, " ", value, ": ", words...));
  };
  const uint64_t in_step = SequencesPerStep(options);
  if (samples_per_epoch > 0 && samples_per_epoch < in_step) {
    say("--batch", options.batch, "a step takes ", in_step, " sequences and an epoch has ",
        samples_per_epoch, ", so each step repeats some");
  }
  for (const std::string& pattern : IdlePatterns(options)) {
    say("--freeze", pattern, "it does nothing, for --lora-rank freezes the same parameters");
  }
  for (const uint64_t milestone : schedule.milestones) {
    if (milestone < schedule.steps) continue;
    say("--lr-milestones", milestone, "it does nothing", in_run);
  }
  if (options.save_every > schedule.steps) {
    say("--save-every", options.save_every, "it does nothing", in_run,
        ", which saves at its end alone");
  }
  if (options.validation_every > schedule.steps) {
    say("--validation-every", options.validation_every, "it does nothing", in_run,
        ", which measures the loss after the last step alone");
  }
  if (schedule.warmup_steps > 0 && schedule.warmup_steps >= schedule.steps) {
    say("--warmup-steps", schedule.warmup_steps, "the learning rate rises to the last step", in_run,
        " and does not reach --lr; give a smaller number");
  }
  return lines;
}

}  // namespace geminid::trainer
