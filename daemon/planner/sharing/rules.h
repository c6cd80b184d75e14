// Rules by which rows are chosen for contenders. None of them is best for all mixes of jobs: which
// one is followed is decided by foresight (foresight.h).
#ifndef GEMINID_DAEMON_PLANNER_SHARING_RULES_H_
#define GEMINID_DAEMON_PLANNER_SHARING_RULES_H_

#include <array>
#include <vector>

#include "daemon/planner/sharing/contest.h"

namespace geminid::planner {

struct Rule {
  enum class Kind {
    kMarginal,  // the row that adds most to the sum of weighted rates for what it takes, repeatedly
    kBalanced,  // more for the job that would end last, repeatedly
    kShortest,  // the best row that fits, to the job with the least work first
    kOldest,    // the same, to the job that came first
  };
  Kind kind = Kind::kMarginal;
  // Of kMarginal: a job's rate counts seconds^-preference. 1: short jobs first, so that their rates
  // are shares of the work that is left. 0: all alike. Below 0: long jobs first.
  double preference = 0;
};

inline constexpr std::array kRules = {
    Rule{Rule::Kind::kMarginal, 1},    Rule{Rule::Kind::kMarginal, 0.5},
    Rule{Rule::Kind::kMarginal, 0},    Rule{Rule::Kind::kMarginal, 2},
    Rule{Rule::Kind::kMarginal, -0.5}, Rule{Rule::Kind::kMarginal, -1},
    Rule{Rule::Kind::kBalanced},       Rule{Rule::Kind::kShortest},
    Rule{Rule::Kind::kOldest},
};

// Whether pinned jobs keep what they have: now, and no longer once some time has passed.
enum class Pins { kHold, kPassed };

// Rows that fit the room of the contest together, with no job below its least. `seconds`: of work
// that is left of each job at its best rate; one with none waits. What is pinned and the least rows
// of the others fit.
Choice Choose(const Contest& contest, const Rule& rule, const std::vector<double>& seconds,
              Pins pins);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_RULES_H_
