// Loads the first values of a run (--load, --resume), and saves and exports checkpoints (--save,
// --export).
#ifndef GEMINID_TOOLS_TRAINER_CHECKPOINTS_H_
#define GEMINID_TOOLS_TRAINER_CHECKPOINTS_H_

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

// Of the state after a step with that loss. A norm that is not finite is usual where the loss scale
// looks for its size.
checkpoint::Health HealthOf(double loss, const zero::StepResult& step, const TrainOptions& options);

// Of one rank; all ranks make the same calls. The state, which is the whole model's, outlives it.
class Checkpoints {
 public:
  using Warn = std::function<void(const std::string& line)>;
  // `terms` are the run's, of the rank that leads; `is_restart`: an earlier start of this run may
  // have saved.
  static absl::StatusOr<std::unique_ptr<Checkpoints>> Create(
      const TrainOptions& options, zero::ModelState* state, collectives::Communicator* communicator,
      std::vector<zero::Parameter> parameters, RunTerms terms, bool is_restart, Warn warn);

  struct Beginning {
    uint64_t step = 0;    // steps that are done
    std::string from;     // what was loaded; empty: nothing
    std::string notes{};  // what the user should know of it, in a line; empty: nothing
  };
  // Sets all values: nothing where the engine has resumed; else as `take_over` has done, if other
  // ranks left their state; else from the newest checkpoint with --resume, if there is one; else
  // from --load; else by `fill`. `goes_on` takes what was saved or left after a number of steps,
  // and says whether this run can go on from there: what stands elsewhere was made with another
  // --seed or --batch, and is refused.
  using TakeOver = std::function<absl::StatusOr<std::optional<RunPosition>>()>;
  using GoesOn = std::function<bool(uint64_t step, const checkpoint::RunState& saved)>;
  absl::StatusOr<Beginning> Begin(const zero::ModelState::Fill& fill, const TakeOver& take_over,
                                  const GoesOn& goes_on);

  // After a step: saves when --save-every says so, or when the step is the last, unless the step is
  // saved already. That this save has failed, or the one before it since, is a warning on the first
  // rank; that the last step's has failed is the error.
  absl::Status AfterStep(uint64_t done, bool last, const checkpoint::RunState& run,
                         checkpoint::Health health);

  // Where the state is an earlier start's, from memory: that start may have died before it saved
  // the step that it had committed. Saves it if it was to be saved and is not there, with the
  // health that was handed over.
  absl::Status AfterResume(uint64_t done, bool last, const checkpoint::RunState& run);

  // After the last step: a Hugging Face folder, if --export says so.
  absl::Status Export();

  // Waits for the save in progress. That it has failed is a warning on the first rank.
  void AwaitSave(uint64_t done);

  std::optional<uint64_t> saved() const { return saved_; }  // the newest step
  // Of the state that the run began with, as far as that is known.
  checkpoint::Health health() const { return health_; }

  // Waits for the last save. Its folder; empty without --save. A failure is told once.
  absl::StatusOr<std::string> Finish();

 private:
  Checkpoints(const TrainOptions& options, zero::ModelState* state,
              collectives::Communicator* communicator, std::vector<zero::Parameter> parameters,
              Warn warn);
  void WarnOfFailure(uint64_t done, const absl::Status& failure) const;
  // `taken` gets what the run does otherwise.
  absl::Status CheckLateTerms(std::vector<std::string>* taken) const;
  absl::StatusOr<Beginning> Resume(const GoesOn& goes_on);
  std::string NotesOfResuming(std::vector<std::string> notes) const;

  const TrainOptions& options_;
  zero::ModelState* const state_;
  collectives::Communicator* const communicator_;
  const std::vector<zero::Parameter> parameters_;
  const Warn warn_;
  RunDescription run_;
  std::unique_ptr<checkpoint::Saver> saver_;
  std::optional<uint64_t> saved_;
  bool began_in_memory_ = false;
  checkpoint::Health health_ = checkpoint::Health::kHealthy;  // of what it began with
};

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_CHECKPOINTS_H_
