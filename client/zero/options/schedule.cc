#include "geminid/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace geminid {
namespace {

double HalfCosine(double progress) { return 0.5 * (1.0 + std::cos(std::numbers::pi * progress)); }

double WarmUp(const Schedule& schedule, uint64_t step) {
  const double warmup = static_cast<double>(schedule.warmup_steps);
  if (schedule.shape != ScheduleShape::kOneCycle) {
    return schedule.peak * static_cast<double>(step + 1) / warmup;
  }
  const double missing = HalfCosine(static_cast<double>(step) / warmup);
  return schedule.peak * (1.0 - (1.0 - schedule.first_share) * missing);
}

// The factor after the warm-up: from 1 right after it to 0 at the last step.
double Fall(const Schedule& schedule, double progress) {
  switch (schedule.shape) {
    case ScheduleShape::kLinear:
      return 1.0 - progress;
    case ScheduleShape::kPolynomial:
      return std::pow(1.0 - progress, schedule.power);
    case ScheduleShape::kCosine:
    case ScheduleShape::kOneCycle:
      return HalfCosine(progress);
    case ScheduleShape::kConstant:
    case ScheduleShape::kMultiStep:
      break;
  }
  return 1.0;
}

bool IsShare(double value) { return value >= 0 && value <= 1; }  // false for NaN

}  // namespace

double Schedule::At(uint64_t step) const {
  if (step < warmup_steps) return WarmUp(*this, step);
  if (shape == ScheduleShape::kMultiStep) {
    const auto passed =
        std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    return peak * std::pow(decay, static_cast<double>(passed));
  }
  if (shape == ScheduleShape::kConstant || steps <= warmup_steps + 1) return peak;
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) /
                                            static_cast<double>(steps - 1 - warmup_steps));
  return peak * (final_share + (1.0 - final_share) * Fall(*this, progress));
}

absl::Status CheckSchedule(const Schedule& schedule) {
  const auto bad = [](const char* field, const char* range) {
    return absl::InvalidArgumentError(absl::StrCat("the schedule's ", field, " must be ", range));
  };
  if (!std::isfinite(schedule.peak) || schedule.peak < 0) {
    return bad("peak", "finite and not negative");
  }
  if (schedule.steps == 0) return bad("steps", "at least 1");
  if (!IsShare(schedule.final_share)) return bad("final_share", "from 0 to 1");
  if (!IsShare(schedule.first_share)) return bad("first_share", "from 0 to 1");
  if (!std::isfinite(schedule.power) || schedule.power <= 0) {
    return bad("power", "finite and positive");
  }
  if (!IsShare(schedule.decay) || schedule.decay == 0) return bad("decay", "above 0, at most 1");
  const std::vector<uint64_t>& milestones = schedule.milestones;
  if (schedule.shape == ScheduleShape::kMultiStep && milestones.empty()) {
    return bad("milestones", "given, at least one, for multi-step");
  }
  if (std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) !=
      milestones.end()) {
    return bad("milestones", "ascending");
  }
  return absl::OkStatus();
}

const char* Name(ScheduleShape shape) {
  switch (shape) {
    case ScheduleShape::kConstant:
      return "constant";
    case ScheduleShape::kLinear:
      return "linear";
    case ScheduleShape::kCosine:
      return "cosine";
    case ScheduleShape::kPolynomial:
      return "polynomial";
    case ScheduleShape::kOneCycle:
      return "one-cycle";
    case ScheduleShape::kMultiStep:
      return "multi-step";
  }
  return "unknown";
}

}  // namespace geminid
