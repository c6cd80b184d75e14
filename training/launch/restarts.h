// The number of restarts of this run so far and the limit, which the launcher tells its ranks.
#ifndef GEMINID_TRAINING_LAUNCH_RESTARTS_H_
#define GEMINID_TRAINING_LAUNCH_RESTARTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/rank_info.h"

namespace geminid::trainer {

inline constexpr int kRestartsMax = 1000;
inline constexpr char kRestartCountVariable[] = "GEMINID_RESTART_COUNT";
inline constexpr char kMaxRestartsVariable[] = "GEMINID_MAX_RESTARTS";
// The time from the failure to this start, in nanoseconds, and the time of this start on the
// monotonic clock of the rank's host. They are separate because the launcher's host may have
// another clock.
inline constexpr char kFailedAgoVariable[] = "GEMINID_FAILED_AGO";
inline constexpr char kStartedAtVariable[] = "GEMINID_STARTED_AT";
// In this order:
//   the number of earlier starts with another number of ranks;
//   "1" if the run may go on with fewer ranks;
//   the number of ranks to which this start hands its state over;
//   "1" if this start has fewer ranks because a rank died;
//   the ids of earlier jobs that may have left sessions in the daemon, separated by commas;
//   a signal that asked an earlier start for an end, but came too late.
inline constexpr char kRescalesVariable[] = "GEMINID_RESCALES";
inline constexpr char kMayShrinkVariable[] = "GEMINID_MAY_SHRINK";
inline constexpr char kShrinkToVariable[] = "GEMINID_SHRINK_TO";
inline constexpr char kHasShrunkVariable[] = "GEMINID_HAS_SHRUNK";
inline constexpr char kJobsBeforeVariable[] = "GEMINID_JOB_IDS_BEFORE";
inline constexpr char kSignalBeforeVariable[] = "GEMINID_SIGNAL_BEFORE";

struct Restarts {
  int count = 0;  // restarts so far
  int most = 0;   // the limit of restarts
  // The time of the failure before this start, on the clock of base::MonotonicNow. Not every
  // launcher reports it.
  std::optional<absl::Time> failed_at = {};
  int rescales = 0;         // earlier starts that changed the number of ranks
  bool may_shrink = false;  // after the last restart, a death leaves a run of fewer ranks
  int shrink_to = 0;        // the ranks that get this start's state; 0: this start trains
  bool has_shrunk = false;  // this start has fewer ranks because a rank died
  std::vector<std::string> jobs_before{};
  int signal_before = 0;

  bool is_first() const { return count == 0 && rescales == 0; }
  // Whether a later start may use what this rank leaves.
  bool comes_back() const { return most > 0 || may_shrink; }
  // Whether an earlier start may have left something for this one.
  bool may_resume() const { return !is_first() && comes_back(); }
  // Whether this rank's memory must be retained if the rank dies now.
  bool keeps() const { return count < most || may_shrink; }
};

// Reads those variables, which Launch and the rank's host set, or torchrun's
// TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_MAX_RESTARTS. INVALID_ARGUMENT names a variable that
// is not a number.
absl::StatusOr<Restarts> RestartsFrom(const collectives::Environment& environment);

// Where a start that is not the first one begins. DescribeStart makes a line for people of it, with
// the time since the failure.
struct StartPoint {
  bool resumed = false;  // from the state that the ranks left in memory
  uint64_t step = 0;     // completed steps
  std::string from{};    // source of the state; empty: there was none
  int ranks_before = 0;  // if their state was handed over; 0: the start has the same ranks
};
std::string DescribeStart(const Restarts& restarts, const StartPoint& start_point, absl::Time now);

// The run's name in the daemon. It distinguishes the run from others of the same job.
std::string RunName(const collectives::RankInfo& info);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RESTARTS_H_
