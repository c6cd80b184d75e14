// Rules that choose rows for contenders. No rule is best for all mixes of jobs, so foresight
// decides which rule to follow (foresight.h).
#ifndef GEMINID_DAEMON_PLANNER_SHARING_RULES_H_
#define GEMINID_DAEMON_PLANNER_SHARING_RULES_H_

#include <array>
#include <vector>

#include "daemon/planner/sharing/sharing_problem.h"

namespace geminid::planner {

struct Rule {
  enum class Kind {
    kMarginal,  // repeatedly the row that adds most to the sum of weighted rates for its cost
    kBalanced,  // repeatedly a larger row for the job that would end last
    kShortest,  // the best row that fits; the job with the least work chooses first
    kOldest,    // the best row that fits; the job that came first chooses first
  };
  Kind kind = Kind::kMarginal;
  // For kMarginal: a job's rate has the weight seconds^-preference. 1: short jobs first, so that
  // their rates are fractions of the remaining work. 0: all weights are equal. Below 0: long jobs
  // first.
  double preference = 0;
};

inline constexpr std::array kRules = {
    Rule{Rule::Kind::kMarginal, 1},    Rule{Rule::Kind::kMarginal, 0.5},
    Rule{Rule::Kind::kMarginal, 0},    Rule{Rule::Kind::kMarginal, 2},
    Rule{Rule::Kind::kMarginal, -0.5}, Rule{Rule::Kind::kMarginal, -1},
    Rule{Rule::Kind::kBalanced},       Rule{Rule::Kind::kShortest},
    Rule{Rule::Kind::kOldest},
};

// Whether pinned jobs keep their rows. kHold: now. kPassed: some time has passed, and they do not.
enum class PinRule { kHold, kPassed };

// Rows that fit the room of the problem together, with no job below its least row. `seconds` is
// each job's remaining work at its best rate; a job without work waits. Pinned rows and the least
// rows of the other jobs must fit.
RowChoice Choose(const SharingProblem& problem, const Rule& rule,
                 const std::vector<double>& seconds, PinRule pins);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_RULES_H_
