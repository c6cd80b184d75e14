// A job of the node as the job reports itself, and the part of the report that is plausible.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_NODE_JOB_H_
#define GEMINID_DAEMON_PLANNER_SHARING_NODE_JOB_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "daemon/planner/sharing/share.h"

namespace geminid::planner {

struct JobKey {
  std::string tenant;
  std::string job;
  auto operator<=>(const JobKey&) const = default;
};

// A job's report about one number of ranks.
struct RanksRow {
  uint64_t ranks = 0;
  uint64_t memory_bytes = 0;  // of all its devices together
  double goodput = 0;
};

struct NodeJob {
  JobKey key;
  int32_t priority = 0;
  // Ranks that the job has; 0: it waits for memory and gets no requests.
  uint64_t ranks = 0;
  uint64_t memory_bytes = 0;      // device memory that the job has or waits for
  uint64_t guaranteed_bytes = 0;  // device memory that the job gets in any case if it can use it
  // Device memory that the tenant may have for the job.
  uint64_t most_bytes = std::numeric_limits<uint64_t>::max();
  std::vector<RanksRow> rows{};  // as the job reports them: unchecked
  // Work, as the job reports it: unchecked.
  std::optional<double> remaining{};
  std::string fixed{};  // why the number of ranks cannot change now; empty: it can
};

inline constexpr uint64_t kMostRanksOfJob = 65536;
// Further rows of a job's report are ignored.
inline constexpr std::size_t kMostRowsOfJob = 64;

// The plausible rows of the job, by the number of ranks, with the present number. A rank takes at
// least the memory that each of the job's ranks has now, and more ranks take no less. One row if
// the job is fixed or its report lacks the present number. The row of a waiting job has the memory
// for which it waits, and no ranks.
std::vector<GoodputRow> UsableRows(const NodeJob& job);
// The row of the job's present number of ranks. Nothing: the job waits.
std::optional<std::size_t> RowOfNow(const NodeJob& job, const std::vector<GoodputRow>& rows);
// The smallest row that the job may get: the best row within its guarantee.
std::size_t LeastRowOf(const NodeJob& job, const std::vector<GoodputRow>& rows);
// The remaining work in the unit of the job's rows, if the report is plausible.
std::optional<double> RemainingOf(const NodeJob& job);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_NODE_JOB_H_
