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

// Threads: as PhaseTeller. `options` and the state outlive this object.
class RunPhases {
 public:
  RunPhases(const TrainOptions& options, PhaseTeller::Write write)
      : options_(options), teller_(std::move(write)) {}

  // A phase whose progress is unknown.
  void Begin(std::string what) { teller_.Begin(std::move(what)); }
  void BeginToRegister();
  void End() { teller_.End(); }

  // Call it before the methods below.
  void SetState(CountedState* state) { state_ = state; }

  // The phase, until End, in which the first values are loaded, restored or initialized.
  void BeginValues();
  // Waits of a save for the previous one, which may take longer than the steps between them.
  InPhase Saving();
  // A phase that reads each of the model's values once.
  InPhase Passing(std::string what);
  InPhase Validating(uint64_t micro_batches);
  // In the first step: begins a phase that lasts until End and shows that `micro_batch` of `of`
  // begins.
  void BeginMicroBatch(bool is_first_step, uint64_t step, uint64_t micro_batch, uint64_t of);
  void CountMicroBatch() { ++micro_batches_; }  // in a validation

  // The measured times of the last validation, and of training's wait for the last save.
  void SetValidationSeconds(double seconds) { validation_seconds_ = seconds; }
  void SetSaveSeconds(double seconds) { save_seconds_ = seconds; }
  // An estimate after step `done` of `steps` and its validation and save. `validation` is null for
  // a run without one.
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
