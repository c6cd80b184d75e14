// A job of the node as it says it is, and what of that may be believed.
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

// What a job says of a number of ranks.
struct RanksRow {
  uint64_t ranks = 0;
  uint64_t memory_bytes = 0;  // of devices, of all of them
  double goodput = 0;
};

struct NodeJob {
  JobKey key;
  int32_t priority = 0;
  uint64_t ranks = 0;             // that it has; 0: it waits for memory, and cannot be asked
  uint64_t memory_bytes = 0;      // of devices, that it has or waits for
  uint64_t guaranteed_bytes = 0;  // of that memory it is given so much, if it has a use for it
  uint64_t most_bytes = std::numeric_limits<uint64_t>::max();  // that its tenant may have for it
  std::vector<RanksRow> rows{};                                // as it says: anything
  std::optional<double> remaining{};                           // likewise
  std::string fixed{};  // why its ranks stay for now; empty: they need not
};

inline constexpr uint64_t kMostRanksOfJob = 65536;
// More than these a job does not get to say.
inline constexpr std::size_t kMostRowsOfJob = 64;

// Its rows that may be true, by the number of ranks, with the one that it has: a rank takes at
// least the memory that each of its ranks has now, and more ranks take no less. One row if it is
// fixed or says nothing of its own number. Of a job that waits: what it waits for, which takes no
// ranks.
std::vector<GoodputRow> UsableRows(const NodeJob& job);
// The row of the number that it has; nothing: it waits.
std::optional<std::size_t> RowOfNow(const NodeJob& job, const std::vector<GoodputRow>& rows);
// The row below which it is not given anything: the best within its guarantee.
std::size_t LeastRowOf(const NodeJob& job, const std::vector<GoodputRow>& rows);
// Work in the unit of its rows, if it says a number that can be.
std::optional<double> RemainingOf(const NodeJob& job);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_NODE_JOB_H_
