// The flags of the learning rate's schedule and of the loss scale.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_SCHEDULE_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_SCHEDULE_FLAGS_H_

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/loss_scaler.h"
#include "geminid/schedule.h"
#include "tools/trainer/flags/flags.h"

namespace geminid::trainer {

std::span<const FlagSpec> ScheduleFlags();  // of every shape
std::span<const OwnedFlag> ShapeFlags();    // of some shapes only

// INVALID_ARGUMENT names the flag: a value out of range, or a flag of another shape.
// `usual_rate`: the peak without --lr.
absl::StatusOr<Schedule> ParseSchedule(const Flags& flags, double usual_rate);

// What to say of a warm-up that is as long as the run or longer; else nothing.
std::string WarmupNote(const Schedule& schedule);

// Unset for none.
absl::StatusOr<std::optional<LossScalerOptions>> ParseLossScale(const Flags& flags);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_SCHEDULE_FLAGS_H_
