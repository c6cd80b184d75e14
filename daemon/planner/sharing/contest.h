// Jobs of one priority that contend for the room that is theirs, in the form that decisions are
// made in: rows as amounts, goodput relative to each job's best.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_CONTEST_H_
#define GEMINID_DAEMON_PLANNER_SHARING_CONTEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/planner/sharing/share.h"

namespace geminid::planner {

using Amounts = std::array<std::uint64_t, kResources>;

inline bool Fits(const Amounts& what, const Amounts& room) {
  for (std::size_t k = 0; k < kResources; ++k) {
    if (what[k] > room[k]) return false;
  }
  return true;
}
inline Amounts Plus(Amounts a, const Amounts& b) {
  for (std::size_t k = 0; k < kResources; ++k) a[k] += b[k];
  return a;
}
// `b` fits `a`.
inline Amounts Minus(Amounts a, const Amounts& b) {
  for (std::size_t k = 0; k < kResources; ++k) a[k] -= b[k];
  return a;
}

// Of one of the job's rows; nothing while it waits.
inline Amounts AmountsOf(const SharingJob& job, const std::optional<std::size_t>& row) {
  return row ? job.rows[*row].share.amounts() : Amounts{};
}

// A choice of the first row of every contender is that it waits.
inline constexpr std::size_t kWaits = 0;

struct Contender {
  struct Row {
    Amounts amounts{};
    double rate = 0;        // of its best row's goodput
    std::size_t index = 0;  // of SharingJob::rows
  };
  std::vector<Row> rows;       // the first one is of nothing, the others fit the room
  std::size_t least = kWaits;  // what it is given at the least
  std::size_t now = kWaits;    // what it has
  bool pinned = false;         // it has that for too short a time to be given another row
  double seconds = 0;          // that its work takes at its best rate
  double came = 0;
};

// The row of each contender.
using Choice = std::vector<std::size_t>;

struct Contest {
  std::vector<Contender> jobs;
  Amounts room{};
  double move_seconds = 0;  // that a job loses when it is given another row

  Amounts Used(const Choice& choice) const {
    Amounts used{};
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      used = Plus(used, jobs[j].rows[choice[j]].amounts);
    }
    return used;
  }
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_CONTEST_H_
