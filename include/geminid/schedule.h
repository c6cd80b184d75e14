// The learning rate of each step: six usual shapes, each with a warm-up. Pure.
//
//   linear warm-up |  constant, linear, cosine, polynomial, multi-step
//   one cycle: half a cosine up during the warm-up, half a cosine down after it
#ifndef GEMINID_SCHEDULE_H_
#define GEMINID_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "geminid/export.h"

namespace geminid {

enum class ScheduleShape { kConstant, kLinear, kCosine, kPolynomial, kOneCycle, kMultiStep };

// Steps count from 0. With W warm-up steps of T in all, and after the warm-up the progress
// x = min(1, (step - W) / (T - 1 - W)), which is 1 at the last step:
//
//   linear, cosine, polynomial, one cycle   peak (final + (1 - final) fall(x))
//     fall(x) = 1 - x,  (1 + cos(pi x)) / 2,  (1 - x)^power,  (1 + cos(pi x)) / 2
//   multi-step                              peak decay^(milestones <= step)
//
// During the warm-up: peak (step + 1) / W; one cycle (Smith and Topin, arXiv 1708.07120):
// peak (1 - (1 - first) (1 + cos(pi step / W)) / 2). A run no longer than its warm-up stays in it.
struct GEMINID_EXPORT Schedule {
  ScheduleShape shape = ScheduleShape::kConstant;
  double peak = 0;
  uint64_t warmup_steps = 0;
  uint64_t steps = 0;  // T, of the whole run
  // Fractions of the peak. The default is the floor of arXiv 2005.14165, appendix B.
  double final_share = 0.1;               // at the last step; linear, cosine, polynomial, one cycle
  double first_share = 0.04;              // at the first step of one cycle
  double power = 2;                       // polynomial
  std::vector<uint64_t> milestones = {};  // multi-step: ascending
  double decay = 0.1;                     // multi-step: at each milestone

  // The rate of a step; after the last step it is constant. Any thread. O(1), multi-step O(log).
  double At(uint64_t step) const;
};

// INVALID_ARGUMENT names the field. All must be finite and in range (peak >= 0, fractions 0 to 1,
// power > 0, decay in (0, 1]), steps >= 1, milestones ascending, for multi-step one or more.
GEMINID_EXPORT absl::Status CheckSchedule(const Schedule& schedule);

GEMINID_EXPORT const char* Name(ScheduleShape shape);

}  // namespace geminid

#endif  // GEMINID_SCHEDULE_H_
