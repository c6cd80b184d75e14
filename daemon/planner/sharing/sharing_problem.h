// Jobs of one priority that compete for the same room, in the form in which decisions are made.
// Rows are amounts, and a row's rate is its goodput relative to the job's best row.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_SHARING_PROBLEM_H_
#define GEMINID_DAEMON_PLANNER_SHARING_SHARING_PROBLEM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/planner/sharing/share.h"

namespace geminid::planner {

using ResourceAmounts = std::array<std::uint64_t, kResources>;

inline bool Fits(const ResourceAmounts& what, const ResourceAmounts& room) {
  for (std::size_t k = 0; k < kResources; ++k) {
    if (what[k] > room[k]) return false;
  }
  return true;
}
inline ResourceAmounts Plus(ResourceAmounts a, const ResourceAmounts& b) {
  for (std::size_t k = 0; k < kResources; ++k) a[k] += b[k];
  return a;
}
// Requires that `b` fits `a`.
inline ResourceAmounts Minus(ResourceAmounts a, const ResourceAmounts& b) {
  for (std::size_t k = 0; k < kResources; ++k) a[k] -= b[k];
  return a;
}

// The amounts of one of the job's rows. Nothing while the job waits.
inline ResourceAmounts AmountsOf(const SharingJob& job, const std::optional<std::size_t>& row) {
  return row ? job.rows[*row].share.amounts() : ResourceAmounts{};
}

// Index of a contender's first row. A contender with this row waits.
inline constexpr std::size_t kWaits = 0;

struct Competitor {
  struct Row {
    ResourceAmounts amounts{};
    double rate = 0;        // goodput, as a fraction of the job's best
    std::size_t index = 0;  // in SharingJob::rows
  };
  std::vector<Row> rows;       // the first row has no amounts, the others fit the room
  std::size_t least = kWaits;  // the smallest row that the job may get
  std::size_t now = kWaits;    // the row that the job has
  bool pinned = false;         // the job got its row too recently to get another
  double seconds = 0;          // that the job's remaining work takes at its best rate
  double came = 0;
};

// The row of each contender.
using RowChoice = std::vector<std::size_t>;

struct SharingProblem {
  std::vector<Competitor> jobs;
  ResourceAmounts room{};
  double move_seconds = 0;  // that a job loses when it gets another row

  ResourceAmounts Used(const RowChoice& choice) const {
    ResourceAmounts used{};
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      used = Plus(used, jobs[j].rows[choice[j]].amounts);
    }
    return used;
  }
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_SHARING_PROBLEM_H_
