// Runs a mix of jobs to its end on a clock of its own, by a policy that is asked whenever a job
// comes or ends, or the policy said when to ask again.
#ifndef GEMINID_TESTS_DAEMON_PLANNER_SHARING_SIMULATION_H_
#define GEMINID_TESTS_DAEMON_PLANNER_SHARING_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "daemon/planner/sharing/share_by_goodput.h"
#include "tests/daemon/planner/sharing/mixes.h"

namespace geminid::planner {

struct Answer {
  std::vector<std::optional<std::size_t>> rows;
  std::optional<double> ask_again{};
  std::vector<Move> moves{};  // of ShareByGoodput
};
// Of the jobs that are there.
using Policy = std::function<Answer(std::span<const SharingJob> jobs, double now)>;
// Sees every answer beside what the jobs had before.
using Watch = std::function<void(std::span<const SharingJob> jobs, double now, const Answer&)>;

struct Outcome {
  double makespan = 0;
  double mean_completion = 0;  // from coming to ending
  std::size_t changes = 0;     // of rows of running jobs
};

Outcome Simulate(const Mix& mix, double move_seconds, const Policy& policy,
                 const Watch& watch = nullptr);

// By ShareByGoodput, which is told how much work is left of each job, or is not.
Policy ByGoodput(const SharingSettings& settings, bool work_known = true);
// In the order in which jobs came: the first gets its best row that fits, and keeps it to its end.
// One that does not fit holds up those behind it.
Policy Fifo();
// An equal part of the node for each job that is there; of it, the job's best row.
Policy EqualShares();

// The least of each, of all ways to choose rows whenever a job ends, for jobs that all come at 0.
// The two may be of different ways.
struct Least {
  double makespan = 0;
  double mean_completion = 0;
};
Least SearchAll(const Mix& mix, double move_seconds);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_SHARING_SIMULATION_H_
