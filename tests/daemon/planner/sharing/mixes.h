// Random mixes of jobs on one node, the same in every run.
#ifndef GEMINID_TESTS_DAEMON_PLANNER_SHARING_MIXES_H_
#define GEMINID_TESTS_DAEMON_PLANNER_SHARING_MIXES_H_

#include <cstdint>
#include <vector>

#include "daemon/planner/sharing/share.h"

namespace geminid::planner {

inline constexpr std::uint64_t kGiB = 1ull << 30;
// Eight devices of 80 GiB, whose links have 400 GB a second together.
inline constexpr Share kNode = {640 * kGiB, 8, 400'000'000'000};

// Jobs with their rows, their work as `remaining`, and their time of arrival as `since`.
struct Mix {
  std::vector<SharingJob> jobs;  // in the order of arrival
};

struct MixOptions {
  std::size_t least_jobs = 2;
  std::size_t most_jobs = 6;
  bool together = false;  // all arrive at 0; false: over about the time of their work
  bool ranked = false;    // with priorities and guarantees
};

Mix MakeMix(std::uint64_t seed, const MixOptions& options);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_SHARING_MIXES_H_
