#include "training/run/run_phases.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "training/logs/remaining.h"

namespace geminid::trainer {

void RunPhases::BeginToRegister() {
  const std::string size =
      options_.device_memory_bytes
          ? absl::StrCat(base::FormatBytes(*options_.device_memory_bytes), " of ")
          : "";
  teller_.Begin(absl::StrCat("registering ", size, "device memory with the daemon"));
}

// As Checkpoints::Begin decides.
void RunPhases::BeginValues() {
  state_->CountFromZero();
  const bool resumes = options_.resumed.has_value();
  if (!resumes && options_.load.empty()) {
    return teller_.Begin("setting the first values", [this] { return state_->Passed(); });
  }
  const auto kinds = resumes ? CountedState::Kinds::kAll : CountedState::Kinds::kValues;
  teller_.Begin(absl::StrCat("loading ", resumes ? options_.resumed->checkpoint : options_.load),
                [this, kinds] { return state_->Loaded(kinds); });
}

InPhase RunPhases::Saving() {
  return InPhase(&teller_, "saving", [this] { return state_->Saved(); });
}

InPhase RunPhases::Passing(std::string what) {
  state_->CountFromZero();
  return InPhase(&teller_, std::move(what), [this] { return state_->Passed(); });
}

InPhase RunPhases::Validating(uint64_t micro_batches) {
  micro_batches_ = 0;
  return InPhase(&teller_, "validation", [this, micro_batches] {
    return PhaseProgress{.done = micro_batches_, .of = micro_batches, .unit = "micro-batches"};
  });
}

void RunPhases::BeginMicroBatch(bool is_first_step, uint64_t step, uint64_t micro_batch,
                                uint64_t of) {
  micro_batches_ = micro_batch;
  if (!is_first_step || micro_batch > 0) return;
  teller_.Begin(absl::StrCat("step ", step + 1), [this, of] {
    return PhaseProgress{.done = micro_batches_, .of = of, .unit = "micro-batches"};
  });
}

double RunPhases::RemainingSeconds(uint64_t done, uint64_t steps, double step_seconds,
                                   uint64_t tokens_per_step, const Validation* validation) const {
  // Before the first validation: a forward pass is a third of the work of a step.
  double validation_seconds = validation_seconds_;
  if (validation_seconds == 0 && validation != nullptr) {
    constexpr double kForwardShare = 1.0 / 3;
    validation_seconds = kForwardShare * step_seconds * static_cast<double>(validation->tokens()) /
                         static_cast<double>(tokens_per_step);
  }
  return trainer::RemainingSeconds(
      {.done = done,
       .steps = steps,
       .step_seconds = step_seconds,
       .validation_every = validation != nullptr ? options_.validation_every : 0,
       .validation_seconds = validation_seconds,
       .saves = !options_.save.empty(),
       .save_every = options_.save_every,
       .save_seconds = save_seconds_,
       .last_save_seconds = state_->snapshot_seconds()});
}

}  // namespace geminid::trainer
