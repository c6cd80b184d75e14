#ifndef GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_REPLAN_H_
#define GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_REPLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"

// When to plan again: compares what steps measure with what the plan predicted.

namespace geminid::planner {

struct ReplanOptions {
  // A step departs from the model when it differs by more than this part of it, either way.
  double step_time_departure = 0.05;
  // Departures in a row, all slower or all faster, before planning again.
  std::uint32_t departures_in_a_row = 3;
  // Steps with another access order, counted since the last plan, before planning again.
  std::uint32_t order_changes = 3;
  // Steps after a plan in which step times and access orders are not judged. Doubles with every
  // replan for those causes up to the most, and halves after as many quiet steps.
  std::uint32_t first_backoff_steps = 8;
  std::uint32_t most_backoff_steps = 1024;
};

enum class ReplanAction : std::uint8_t { kKeep, kReplan };

enum class ReplanCause : std::uint8_t {
  kNone,
  kPeak,         // a peak above its margin: the plan is no longer safe
  kAccessOrder,  // the operators use chunks in another order
  kSlower,
  kFaster,
};

struct ReplanVerdict {
  ReplanAction action = ReplanAction::kKeep;
  ReplanCause cause = ReplanCause::kNone;
};

// What one step showed.
struct StepObservation {
  double step_seconds = 0;
  // The largest excess of non-model memory over what the plan set aside, over all moments; 0: none.
  std::uint64_t peak_excess_bytes = 0;
  bool access_order_changed = false;
};

// A pure state machine of one rank, or of all if they feed it what they agreed on. Never
// oscillates: a verdict of kReplan expects OnReplanned, which takes the measured time for the new
// model, so that the same departure is never counted twice; and the back-off grows, so that
// measurements alternating for ever cause a number of replans that grows with the logarithm of the
// number of steps until the longest back-off, and then at most one per longest back-off.
// A peak replans at once, whatever the back-off, but only if it exceeds every peak replanned for
// before: margins grow, so this ends too.
class ReplanController {
 public:
  // INVALID_ARGUMENT naming the option. `model_seconds`: the plan's prediction.
  static absl::StatusOr<ReplanController> Create(const ReplanOptions& options,
                                                 double model_seconds);

  // One step is over. O(1).
  ReplanVerdict OnStep(const StepObservation& observation);

  // A new plan is in force, predicting `model_seconds`. The measured steps calibrate it: later
  // steps are compared with model_seconds x (measured / predicted of the last departures).
  void OnReplanned(double model_seconds);

  // What steps are compared with.
  double expected_seconds() const { return model_seconds_ * calibration_; }
  // Measured over predicted; multiply predictions by it.
  double calibration() const { return calibration_; }
  std::uint32_t backoff_steps() const { return backoff_steps_; }

 private:
  ReplanController(const ReplanOptions& options, double model_seconds)
      : options_(options),
        model_seconds_(model_seconds),
        backoff_steps_(options.first_backoff_steps) {}

  ReplanVerdict Judge(const StepObservation& observation);
  void CountDeparture(double step_seconds);

  ReplanOptions options_;
  double model_seconds_;
  double calibration_ = 1;
  std::uint32_t backoff_steps_;
  std::uint32_t quiet_until_ = 0;  // steps still not judged
};

const char* ReplanCauseName(ReplanCause cause);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_REPLAN_H_
