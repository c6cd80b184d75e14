// Predicts the ends of contenders that get rows by a rule until the last has ended, and chooses the
// rows that they get now.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_FORESIGHT_H_
#define GEMINID_DAEMON_PLANNER_SHARING_FORESIGHT_H_

#include "daemon/planner/sharing/rules.h"
#include "daemon/planner/sharing/sharing_problem.h"

namespace geminid::planner {

struct Future {
  double last_end = 0;  // seconds from now
  double mean_end = 0;
};

// The contenders have `first` until a job ends, and then rows by `rule` after each end. Jobs that
// arrive later are unknown.
Future Foresee(const SharingProblem& problem, const RowChoice& first, const Rule& rule);

// Predicts the future of each rule. A future is as good as the worse of its two ends, each relative
// to the best that any rule reaches. Returns the rows of the rule with the best future. If the
// jobs' present rows fit, that future must be better by `least_gain`. Otherwise the jobs keep their
// rows, and waiting jobs get the remaining room.
RowChoice ChooseByForesight(const SharingProblem& problem, double least_gain);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_FORESIGHT_H_
