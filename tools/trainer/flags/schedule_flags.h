// The flags of the learning rate's schedule and of the loss scale.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_SCHEDULE_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_SCHEDULE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "geminid/loss_scaler.h"
#include "geminid/schedule.h"
#include "tools/trainer/flags/flags.h"

namespace geminid::trainer {

inline constexpr uint64_t kStepsMax = 1'000'000'000;

std::span<const FlagSpec> ScheduleFlags();  // of all shapes
std::span<const OwnedFlag> ShapeFlags();    // of some shapes only

// INVALID_ARGUMENT names the flag: a value out of range, or a flag of another shape. `usual_rate`
// is the peak without --lr. With --epochs the number of steps is still unknown.
absl::StatusOr<Schedule> ParseSchedule(const Flags& flags, double usual_rate);

// The warm-up if --warmup-steps is not given.
uint64_t UsualWarmup(const Schedule& schedule);

// Empty without a loss scale.
absl::StatusOr<std::optional<LossScalerOptions>> ParseLossScale(const Flags& flags);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_SCHEDULE_FLAGS_H_
