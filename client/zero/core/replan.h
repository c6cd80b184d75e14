#ifndef GEMINID_CLIENT_ZERO_CORE_REPLAN_H_
#define GEMINID_CLIENT_ZERO_CORE_REPLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

// When to plan again: compares what steps measure with what the plan predicted.

namespace geminid::zero {

struct ReplanOptions {
  // A step departs from the model when it differs by more than this part of it, either way.
  double step_time_departure = 0.05;
  // Departures in a row, all slower or all faster, before planning again.
  std::uint32_t departures_in_a_row = 3;
  // After a plan, step times are not judged for this many steps. Doubles with every replan for
  // them, up to the most, and halves after the most steps without a departure in a row.
  std::uint32_t first_backoff_steps = 8;
  std::uint32_t most_backoff_steps = 1024;
  // What the first plan sets aside above the sampled non-model memory.
  std::uint64_t margin_bytes = 0;
};

inline constexpr std::size_t kReplanCauses = 5;

enum class ReplanCause : std::uint8_t {
  kNone,         // the plan stays
  kPeak,         // a peak above the margin: the plan is no longer safe
  kAccessOrder,  // the operators use chunks in another order: PlanBackoff decides
  kSlower,
  kFaster,
};

// What one step showed.
struct StepObservation {
  // Not judged unless positive and finite.
  double step_seconds = 0;
  // By how much non-model memory rose above the first plan's sample, over all moments; 0: not.
  std::uint64_t peak_excess_bytes = 0;
};

// A pure state machine of one rank, or of all if they feed it what they agreed on. Once it has
// named a cause it waits for OnReplanned, and answers kNone until then.
//
// It never oscillates. A replan for step times takes the measured time into the model, so that the
// same departure does not count twice. Whatever is measured, S steps bring at most
//   log2(most_backoff / first_backoff) + 2 + 2 S / most_backoff
// replans for step times. A peak replans at once, and the margin at least doubles
// each time: at most log2(largest excess) + 2 replans for peaks.
class ReplanController {
 public:
  // INVALID_ARGUMENT naming the option. `model_seconds`: the plan's prediction.
  static absl::StatusOr<ReplanController> Create(const ReplanOptions& options,
                                                 double model_seconds);

  // One step is over: why to plan again, if at all. O(1).
  ReplanCause OnStep(const StepObservation& observation);

  // A new plan is in force, predicting `model_seconds`, made with margin_bytes() set aside.
  void OnReplanned(double model_seconds);

  // What steps are compared with.
  double expected_seconds() const { return model_seconds_ * calibration_; }
  // What the next plan must set aside above the sample.
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
  // What the departures that led to the last replan for step times measured, over what the plan
  // made then predicts.
  double calibration_ = 1;
  std::uint64_t margin_bytes_;
  std::uint32_t backoff_steps_;
  std::uint32_t not_judged_ = 0;  // steps left
  std::uint32_t calm_steps_ = 0;  // in a row, without a departure
  // The departures in a row: all of one direction.
  std::uint32_t departures_ = 0;
  bool slower_ = false;
  double departed_seconds_ = 0;  // their sum
  ReplanCause asked_ = ReplanCause::kNone;
};

// "slower" and so on.
const char* ReplanCauseName(ReplanCause cause);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_REPLAN_H_
