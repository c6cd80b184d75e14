#include "client/zero/core/replan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace geminid::zero {
namespace {

bool IsDuration(double seconds) { return std::isfinite(seconds) && seconds > 0; }

}  // namespace

absl::StatusOr<ReplanController> ReplanController::Create(const ReplanOptions& options,
                                                          double model_seconds) {
  if (!IsDuration(model_seconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("model_seconds is ", model_seconds, "; it must be finite and positive"));
  }
  if (!(options.step_time_departure > 0 && options.step_time_departure < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("options.step_time_departure is ",
                                                   options.step_time_departure,
                                                   "; it must be between 0 and 1"));
  }
  if (options.departures_in_a_row == 0) {
    return absl::InvalidArgumentError("options: departures_in_a_row must be at least 1");
  }
  if (options.first_backoff_steps == 0 ||
      options.most_backoff_steps < options.first_backoff_steps ||
      options.most_backoff_steps > std::numeric_limits<std::uint32_t>::max() / 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "options: back-off of ", options.first_backoff_steps, " to ", options.most_backoff_steps,
        " steps; the first must be at least 1 and not above the most, the most below 2^31"));
  }
  return ReplanController(options, model_seconds);
}

ReplanCause ReplanController::Ask(ReplanCause cause) {
  asked_ = cause;
  return cause;
}

ReplanCause ReplanController::OnStep(const StepObservation& observation) {
  if (asked_ != ReplanCause::kNone) return ReplanCause::kNone;
  if (observation.peak_excess_bytes > margin_bytes_) {
    const bool doubles = margin_bytes_ <= std::numeric_limits<std::uint64_t>::max() / 2;
    margin_bytes_ =
        std::max(observation.peak_excess_bytes, doubles ? 2 * margin_bytes_ : margin_bytes_);
    return Ask(ReplanCause::kPeak);
  }
  if (not_judged_ > 0) {
    --not_judged_;
    return ReplanCause::kNone;
  }
  return IsDuration(observation.step_seconds) ? JudgeTime(observation.step_seconds)
                                              : ReplanCause::kNone;
}

ReplanCause ReplanController::JudgeTime(double step_seconds) {
  const double difference = step_seconds - expected_seconds();
  if (std::abs(difference) <= options_.step_time_departure * expected_seconds()) {
    departures_ = 0;
    if (++calm_steps_ >= options_.most_backoff_steps) {
      calm_steps_ = 0;
      backoff_steps_ = std::max(options_.first_backoff_steps, backoff_steps_ / 2);
    }
    return ReplanCause::kNone;
  }
  calm_steps_ = 0;
  const bool slower = difference > 0;
  if (departures_ == 0 || slower != slower_) {
    departures_ = 0;
    departed_seconds_ = 0;
  }
  slower_ = slower;
  departed_seconds_ += step_seconds;
  if (++departures_ < options_.departures_in_a_row) return ReplanCause::kNone;
  return Ask(slower ? ReplanCause::kSlower : ReplanCause::kFaster);
}

void ReplanController::OnReplanned(double model_seconds) {
  const bool for_time = asked_ == ReplanCause::kSlower || asked_ == ReplanCause::kFaster;
  if (IsDuration(model_seconds)) model_seconds_ = model_seconds;
  // Relative to the new prediction, which may include the departure: it must not count twice.
  if (for_time) {
    calibration_ = departed_seconds_ / static_cast<double>(departures_) / model_seconds_;
  }
  // A replan for a peak says nothing about the model, so it does not lengthen the backoff.
  if (for_time) {
    not_judged_ = backoff_steps_;
    backoff_steps_ = std::min(2 * backoff_steps_, options_.most_backoff_steps);
  } else {
    not_judged_ = std::max(not_judged_, options_.first_backoff_steps);
  }
  departures_ = 0;
  calm_steps_ = 0;
  asked_ = ReplanCause::kNone;
}

const char* ReplanCauseName(ReplanCause cause) {
  switch (cause) {
    case ReplanCause::kNone:
      return "none";
    case ReplanCause::kPeak:
      return "peak";
    case ReplanCause::kAccessOrder:
      return "access order";
    case ReplanCause::kSlower:
      return "slower";
    case ReplanCause::kFaster:
      return "faster";
  }
  return "unknown";
}

}  // namespace geminid::zero
