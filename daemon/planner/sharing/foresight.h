// What becomes of contenders that are given rows by a rule until the last one has ended, and with
// that which rows they are given now.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_FORESIGHT_H_
#define GEMINID_DAEMON_PLANNER_SHARING_FORESIGHT_H_

#include "daemon/planner/sharing/contest.h"
#include "daemon/planner/sharing/rules.h"

namespace geminid::planner {

struct Future {
  double last_end = 0;  // seconds from now
  double mean_end = 0;
};

// With `first` until a job ends, and by `rule` after each end. Jobs that come later are not known.
Future Foresee(const Contest& contest, const Choice& first, const Rule& rule);

// The rows of the rule whose future is the best: the least of the worse one of its two ends, each
// beside the best that any rule has. What the jobs have now, with the room that is left given to
// those that wait, is kept unless the future is better than with that by `least_gain`.
Choice ChooseByForesight(const Contest& contest, double least_gain);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_FORESIGHT_H_
