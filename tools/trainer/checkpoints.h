// Loads the first values of a run (--load, --resume), and saves and exports checkpoints (--save,
// --export).
#ifndef GEMINID_TOOLS_TRAINER_CHECKPOINTS_H_
#define GEMINID_TOOLS_TRAINER_CHECKPOINTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/checkpoint.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"
#include "training/scaling/state_image.h"
#include "training/settings/options.h"
#include "training/settings/run_description.h"

namespace geminid::trainer {

// The health of the state after a step with `loss`. While the loss scale is being adjusted, a norm
// that is not finite is normal.
checkpoint::Health HealthOf(double loss, const zero::StepResult& step, const TrainOptions& options);

// One rank's checkpoints; all ranks make the same calls. `state`, the whole model's, outlives it.
class Checkpoints {
 public:
  using Warn = std::function<void(const std::string& line)>;
  // `terms` are the run's terms, from the rank that leads. `is_restart`: an earlier start of this
  // run may have saved checkpoints.
  static absl::StatusOr<std::unique_ptr<Checkpoints>> Create(
      const TrainOptions& options, zero::ModelState* state, collectives::Communicator* communicator,
      std::vector<zero::Parameter> parameters, RunTerms terms, bool is_restart, Warn warn);

  struct StartPoint {
    uint64_t step = 0;    // steps that are done
    std::string from;     // the folder or state that was loaded; empty: none
    std::string notes{};  // a line for the user about what was loaded; empty: none
  };
  // Sets all values from the first of these: the engine's own state, if it has resumed; the state
  // that other ranks left, by `take_over`; with --resume the newest checkpoint, if there is one;
  // --load; `fill`. `can_continue` gets what was saved or left after a number of steps, and says
  // whether this run can continue from it. Begin refuses progress that was made with another --seed
  // or
  // --batch.
  using TakeOver = std::function<absl::StatusOr<std::optional<RunPosition>>()>;
  using CanContinue = std::function<bool(uint64_t step, const checkpoint::RunState& saved)>;
  absl::StatusOr<StartPoint> Begin(const zero::ModelState::Fill& fill, const TakeOver& take_over,
                                   const CanContinue& can_continue);

  // Call this after each step. Saves if --save-every asks for it or the step is the last, unless
  // the step is already saved. If this save or an earlier one has failed, the first rank warns; if
  // the last step's save has failed, that is the error.
  absl::Status AfterStep(uint64_t done, bool last, const checkpoint::RunState& run,
                         checkpoint::Health health);

  // Call this if the state comes from memory of an earlier start, which may have died before it
  // saved the step that it had committed. Saves that step if it was due and is not saved, with the
  // health that was handed over.
  absl::Status AfterResume(uint64_t done, bool last, const checkpoint::RunState& run);

  // Call this after the last step: exports a Hugging Face folder if --export asks for one.
  absl::Status Export();

  // Waits for the save in progress. If it has failed, the first rank warns.
  void AwaitSave();
  // Whether a call of another thread waits for a save. For any thread.
  bool awaits_save() const { return awaits_save_; }

  std::optional<uint64_t> saved() const { return saved_; }  // the newest step whose save began
  // The health of the state that the run began with, as far as it is known.
  checkpoint::Health health() const { return health_; }

  // Waits for the last save; returns its folder, empty without --save. Reports each failure once.
  absl::StatusOr<std::string> Finish();

 private:
  Checkpoints(const TrainOptions& options, zero::ModelState* state,
              collectives::Communicator* communicator, std::vector<zero::Parameter> parameters,
              Warn warn);
  void WarnOfFailure(uint64_t step, const absl::Status& failure) const;
  // Adds to `taken` the differences to the checkpoint that the run accepts.
  absl::Status CheckLateTerms(std::vector<std::string>* taken) const;
  absl::StatusOr<StartPoint> Resume(const CanContinue& can_continue);
  std::string NotesOfResuming(std::vector<std::string> notes) const;

  const TrainOptions& options_;
  zero::ModelState* const state_;
  collectives::Communicator* const communicator_;
  const std::vector<zero::Parameter> parameters_;
  const Warn warn_;
  RunDescription run_;
  std::unique_ptr<checkpoint::Saver> saver_;
  std::atomic<bool> awaits_save_ = false;
  std::optional<uint64_t> saved_;
  bool began_in_memory_ = false;
  checkpoint::Health health_ = checkpoint::Health::kHealthy;  // of the state it began with
};

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_CHECKPOINTS_H_
