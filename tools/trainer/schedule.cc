#include "tools/trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

constexpr double kFinalShare = 0.1;

}  // namespace

double Schedule::At(uint64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (shape == Shape::kConstant || steps <= warmup_steps + 1) return peak;
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) /
                                            static_cast<double>(steps - 1 - warmup_steps));
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * (kFinalShare + (1.0 - kFinalShare) * share);
}

absl::StatusOr<Schedule::Shape> ParseScheduleShape(const std::string& name) {
  if (name == "constant") return Schedule::Shape::kConstant;
  if (name == "cosine") return Schedule::Shape::kCosine;
  return absl::InvalidArgumentError(
      absl::StrCat("there is no learning rate schedule '", name, "'; use constant or cosine"));
}

}  // namespace geminid::trainer
