// The learning rate of each step.
#ifndef GEMINID_TOOLS_TRAINER_SCHEDULE_H_
#define GEMINID_TOOLS_TRAINER_SCHEDULE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace geminid::trainer {

struct Schedule {
  enum class Shape { kConstant, kCosine };
  Shape shape = Shape::kConstant;
  double peak = 0;
  uint64_t warmup_steps = 0;
  uint64_t steps = 0;  // of the whole run

  // Linear from peak / warmup_steps to peak in the first warmup_steps steps; then constant, or half
  // a cosine down to a tenth of the peak at the last step (arXiv:2005.14165, appendix B). Steps
  // count from 0.
  double At(uint64_t step) const;
};

absl::StatusOr<Schedule::Shape> ParseScheduleShape(const std::string& name);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_SCHEDULE_H_
