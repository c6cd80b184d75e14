#include "tools/trainer/flags/schedule_flags.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/flag_values.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr double kRateMax = 1e3;
constexpr double kPowerMax = 100;
// Used without --warmup-steps. One cycle rises for the same share of the run as its authors' code.
constexpr uint64_t kWarmupSteps = 50;
constexpr double kOneCycleRise = 0.3;
// Beyond these fp32 itself overflows or underflows.
constexpr double kLossScaleMin = 1.0 / (uint64_t{1} << 32);
constexpr double kLossScaleMax = uint64_t{1} << 32;

constexpr std::array kShapes = {ScheduleShape::kConstant, ScheduleShape::kLinear,
                                ScheduleShape::kCosine,   ScheduleShape::kPolynomial,
                                ScheduleShape::kOneCycle, ScheduleShape::kMultiStep};

constexpr uint32_t Bit(ScheduleShape shape) { return uint32_t{1} << static_cast<uint32_t>(shape); }
constexpr uint32_t kFalling = Bit(ScheduleShape::kLinear) | Bit(ScheduleShape::kCosine) |
                              Bit(ScheduleShape::kPolynomial) | Bit(ScheduleShape::kOneCycle);

constexpr FlagSpec kScheduleFlags[] = {
    {"--steps", &Flags::steps, "N", "Optimizer steps"},
    {"--epochs", &Flags::epochs, "N",
     "In place of --steps: as many steps as N passes over the data take"},
    {"--lr", &Flags::lr, "X",
     "Learning rate at its peak [as suits the optimizer; 6e-4 with adamw]"},
    {"--schedule", &Flags::schedule, "NAME",
     "constant, linear, cosine, polynomial, one-cycle or multi-step"},
    {"--warmup-steps", &Flags::warmup_steps, "N",
     "Steps of warm-up [50; one-cycle: 3/10 of the steps]"},
    {"--loss-scale", &Flags::loss_scale, "SCALE", "none, dynamic or a number"},
};
constexpr OwnedFlag kShapeFlags[] = {
    {{"--lr-floor", &Flags::lr_floor, "X", "Share of the peak at the last step [0.1]"}, kFalling},
    {{"--lr-first", &Flags::lr_first, "X", "one-cycle: share of the peak at the first step [0.04]"},
     Bit(ScheduleShape::kOneCycle)},
    {{"--lr-power", &Flags::lr_power, "X", "polynomial: its power [2]"},
     Bit(ScheduleShape::kPolynomial)},
    {{"--lr-milestones", &Flags::lr_milestones, "N,...",
      "multi-step: steps at which the rate falls"},
     Bit(ScheduleShape::kMultiStep)},
    {{"--lr-decay", &Flags::lr_decay, "X", "multi-step: factor of the rate at each [0.1]"},
     Bit(ScheduleShape::kMultiStep)},
};

absl::StatusOr<ScheduleShape> ParseShape(const Flags& flags) {
  std::array<std::pair<const char*, ScheduleShape>, kShapes.size()> words;
  std::array<const char*, kShapes.size()> names;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    names[i] = Name(kShapes[i]);
    words[i] = {names[i], kShapes[i]};
  }
  GEMINID_ASSIGN_OR_RETURN(const ScheduleShape shape,
                           base::ParseWord("--schedule", flags.schedule, words));
  GEMINID_RETURN_IF_ERROR(
      CheckOwnedFlags(flags, kShapeFlags, static_cast<uint32_t>(shape), "--schedule", names));
  return shape;
}

absl::StatusOr<uint64_t> ParseWarmup(const Flags& flags, const Schedule& schedule) {
  if (flags.warmup_steps.empty()) return UsualWarmup(schedule);
  return base::ParseCount("--warmup-steps", flags.warmup_steps, 0, kStepsMax);
}

absl::Status ParseMilestones(const std::string& text, std::vector<uint64_t>* milestones) {
  if (text.empty()) return absl::OkStatus();
  for (const std::string& piece : std::vector<std::string>(absl::StrSplit(text, ','))) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t step,
                             base::ParseCount("--lr-milestones", piece, 1, kStepsMax));
    milestones->push_back(step);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const FlagSpec> ScheduleFlags() { return kScheduleFlags; }
std::span<const OwnedFlag> ShapeFlags() { return kShapeFlags; }

uint64_t UsualWarmup(const Schedule& schedule) {
  if (schedule.shape != ScheduleShape::kOneCycle) return kWarmupSteps;
  return static_cast<uint64_t>(kOneCycleRise * static_cast<double>(schedule.steps));
}

absl::StatusOr<Schedule> ParseSchedule(const Flags& flags, double usual_rate) {
  Schedule schedule;
  GEMINID_ASSIGN_OR_RETURN(schedule.shape, ParseShape(flags));
  schedule.steps = 1;  // with --epochs the data decides
  if (flags.epochs.empty()) {
    GEMINID_ASSIGN_OR_RETURN(schedule.steps,
                             base::ParseCount("--steps", flags.steps, 1, kStepsMax));
  }
  GEMINID_ASSIGN_OR_RETURN(schedule.warmup_steps, ParseWarmup(flags, schedule));
  schedule.peak = usual_rate;
  const auto take = [](const char* flag, const std::string& text, double max, double* value) {
    if (text.empty()) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(*value, base::ParseReal(flag, text, 0, max));
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(take("--lr", flags.lr, kRateMax, &schedule.peak));
  GEMINID_RETURN_IF_ERROR(take("--lr-floor", flags.lr_floor, 1, &schedule.final_share));
  GEMINID_RETURN_IF_ERROR(take("--lr-first", flags.lr_first, 1, &schedule.first_share));
  GEMINID_RETURN_IF_ERROR(take("--lr-power", flags.lr_power, kPowerMax, &schedule.power));
  GEMINID_RETURN_IF_ERROR(take("--lr-decay", flags.lr_decay, 1, &schedule.decay));
  GEMINID_RETURN_IF_ERROR(ParseMilestones(flags.lr_milestones, &schedule.milestones));
  GEMINID_RETURN_IF_ERROR(CheckSchedule(schedule));
  return schedule;
}

absl::StatusOr<std::optional<LossScalerOptions>> ParseLossScale(const Flags& flags) {
  if (flags.loss_scale == "none") return std::nullopt;
  if (flags.loss_scale == "dynamic") return std::optional(LossScalerOptions{});
  const absl::StatusOr<double> scale =
      base::ParseReal("--loss-scale", flags.loss_scale, kLossScaleMin, kLossScaleMax);
  if (scale.ok()) return std::optional(FixedLossScale(*scale));
  return absl::InvalidArgumentError(absl::StrCat(base::WithValue("--loss-scale", flags.loss_scale),
                                                 "it must be none, dynamic, or a number from ",
                                                 kLossScaleMin, " to ", kLossScaleMax));
}

}  // namespace geminid::trainer
