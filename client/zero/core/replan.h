#ifndef GEMINID_CLIENT_ZERO_CORE_REPLAN_H_
#define GEMINID_CLIENT_ZERO_CORE_REPLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

// When to plan again: compares measured step times with the plan's prediction.

namespace geminid::zero {

struct ReplanOptions {
  // A step departs from the model if its time differs by more than this fraction, either way.
  double step_time_departure = 0.05;
  // So many departures in a row, all slower or all faster, cause a new plan.
  std::uint32_t departures_in_a_row = 3;
  // For so many steps after a plan, times are not judged. The number doubles with each replan for
  // step times, up to the most, and halves after the most steps in a row without a departure.
  std::uint32_t first_backoff_steps = 8;
  std::uint32_t most_backoff_steps = 1024;
  // The first plan's margin above the sampled non-model memory.
  std::uint64_t margin_bytes = 0;
};

inline constexpr std::size_t kReplanCauses = 5;

enum class ReplanCause : std::uint8_t {
  kNone,         // the plan stays in force
  kPeak,         // a peak above the margin: the plan is no longer safe
  kAccessOrder,  // the operators use chunks in another order; PlanBackoff decides
  kSlower,
  kFaster,
};

// The measurements of one step.
struct StepObservation {
  // Not judged unless positive and finite.
  double step_seconds = 0;
  // How far non-model memory rose above the first plan's sample, over all moments; 0: it did not.
  std::uint64_t peak_excess_bytes = 0;
};

// A pure state machine of one rank, or of all ranks if all feed it agreed values. After it has
// named a cause, it returns kNone until OnReplanned.
//
// It never oscillates. A replan for step times takes the measured time into the model, so that the
// same departure does not count twice. Whatever is measured, S steps cause at most
//   log2(most_backoff / first_backoff) + 2 + 2 S / most_backoff
// replans for step times. A peak causes a replan at once, and the margin at least doubles
// each time: at most log2(largest excess) + 2 replans for peaks.
class ReplanController {
 public:
  // INVALID_ARGUMENT names the option. `model_seconds`: the plan's prediction.
  static absl::StatusOr<ReplanController> Create(const ReplanOptions& options,
                                                 double model_seconds);

  // One step has ended. Returns why to plan again, or kNone. O(1).
  ReplanCause OnStep(const StepObservation& observation);

  // A new plan is in force. It predicts `model_seconds`, and was made with margin_bytes().
  void OnReplanned(double model_seconds);

  // The time that steps are compared with.
  double expected_seconds() const { return model_seconds_ * calibration_; }
  // The margin above the sample that the next plan must have.
  std::uint64_t margin_bytes() const { return margin_bytes_; }

 private:
  ReplanController(const ReplanOptions& options, double model_seconds)
      : options_(options),
        model_seconds_(model_seconds),
        margin_bytes_(options.margin_bytes),
        backoff_steps_(options.first_backoff_steps) {}

  ReplanCause JudgeTime(double step_seconds);
  ReplanCause Ask(ReplanCause cause);

  ReplanOptions options_;
  double model_seconds_;
  // Of the last replan for step times: the measured time of its departures over the new plan's
  // prediction.
  double calibration_ = 1;
  std::uint64_t margin_bytes_;
  std::uint32_t backoff_steps_;
  std::uint32_t not_judged_ = 0;  // steps left
  std::uint32_t calm_steps_ = 0;  // in a row without a departure
  // Departures in a row, all slower or all faster.
  std::uint32_t departures_ = 0;
  bool slower_ = false;
  double departed_seconds_ = 0;  // the sum of the departures' times
  ReplanCause asked_ = ReplanCause::kNone;
};

// "slower" and so on.
const char* ReplanCauseName(ReplanCause cause);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_REPLAN_H_
