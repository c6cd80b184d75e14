// Reports the phases of a rank's run (load, train, validate, save), and how long the run still
// takes.
#ifndef GEMINID_TRAINING_RUN_RUN_PHASES_H_
#define GEMINID_TRAINING_RUN_RUN_PHASES_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "training/engines/validation.h"
#include "training/logs/counted_state.h"
#include "training/logs/phase.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Threads as of PhaseTeller. `options` outlives it, and so does the state.
class RunPhases {
 public:
  RunPhases(const TrainOptions& options, PhaseTeller::Write write)
      : options_(options), teller_(std::move(write)) {}

  // What cannot say how far it is.
  void Begin(std::string what) { teller_.Begin(std::move(what)); }
  void BeginToRegister();
  void End() { teller_.End(); }

  // Before what follows.
  void SetState(CountedState* state) { state_ = state; }

  // Until End: the first values, wherever they come from.
  void BeginValues();
  // The save before may take longer than the steps since.
  InPhase Saving();
  // What reads each of the model's values once.
  InPhase Passing(std::string what);
  InPhase Validating(uint64_t micro_batches);
  // Of the first step, until End; then its progress is shown. `micro_batch` of `of` is about to
  // begin.
  void BeginMicroBatch(bool is_first_step, uint64_t step, uint64_t micro_batch, uint64_t of);
  void CountMicroBatch() { ++micro_batches_; }  // of the validation

  // What was measured of the last validation, and of how long training waited for the last save.
  void SetValidationSeconds(double seconds) { validation_seconds_ = seconds; }
  void SetSaveSeconds(double seconds) { save_seconds_ = seconds; }
  // After step `done` of `steps`, whose validation and save are done. Null: there is no validation.
  double RemainingSeconds(uint64_t done, uint64_t steps, double step_seconds,
                          uint64_t tokens_per_step, const Validation* validation) const;

 private:
  const TrainOptions& options_;
  CountedState* state_ = nullptr;
  std::atomic<uint64_t> micro_batches_ = 0;  // of the step or validation that is under way
  double validation_seconds_ = 0;
  double save_seconds_ = 0;
  PhaseTeller teller_;  // destroyed first: it asks the others how far they are
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_RUN_PHASES_H_
