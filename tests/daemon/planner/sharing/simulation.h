// Runs a mix of jobs to its end on a clock of its own. The policy is called whenever a job comes or
// ends, or when the policy asked to be called again.
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
// Called with the jobs that are present.
using Policy = std::function<Answer(std::span<const SharingJob> jobs, double now)>;
// Called with every answer and the jobs' rows before it.
using Watch = std::function<void(std::span<const SharingJob> jobs, double now, const Answer&)>;

struct Outcome {
  double makespan = 0;
  double mean_completion = 0;  // from arrival to end
  std::size_t changes = 0;     // of rows of running jobs
};

Outcome Simulate(const Mix& mix, double move_seconds, const Policy& policy,
                 const Watch& watch = nullptr);

// ShareByGoodput. The remaining work of each job is known to it only with `work_known`.
Policy ByGoodput(const SharingSettings& settings, bool work_known = true);
// Serves jobs in the order of arrival. The first gets its best row that fits, and keeps it to its
// end. A job that does not fit delays those behind it.
Policy Fifo();
// Each job that is present gets an equal part of the node, and of it the job's best row.
Policy EqualShares();

// The least makespan and the least mean completion over all ways to choose rows whenever a job
// ends. All jobs come at 0. The two values may belong to different ways.
struct Least {
  double makespan = 0;
  double mean_completion = 0;
};
Least SearchAll(const Mix& mix, double move_seconds);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_SHARING_SIMULATION_H_
