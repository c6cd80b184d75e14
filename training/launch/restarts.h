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
// Nanoseconds: how long before this start the run has failed, and when this start was, by the
// monotonic clock of the rank's host. The launcher may be on another host, whose clock is another.
inline constexpr char kFailedAgoVariable[] = "GEMINID_FAILED_AGO";
inline constexpr char kStartedAtVariable[] = "GEMINID_STARTED_AT";
// How many starts before this one had another number of ranks; "1" where the run may go on with
// fewer; to how many ranks this start is to hand its state over; the ids, with commas, of earlier
// starts' jobs that may have left something in the daemon; a signal that asked an earlier start for
// an end, too late.
inline constexpr char kRescalesVariable[] = "GEMINID_RESCALES";
inline constexpr char kMayShrinkVariable[] = "GEMINID_MAY_SHRINK";
inline constexpr char kShrinkToVariable[] = "GEMINID_SHRINK_TO";
inline constexpr char kJobsBeforeVariable[] = "GEMINID_JOB_IDS_BEFORE";
inline constexpr char kSignalBeforeVariable[] = "GEMINID_SIGNAL_BEFORE";

struct Restarts {
  int count = 0;  // starts before this one
  int most = 0;   // 0: whatever dies is gone
  // When the failure was that this start is for, as base::MonotonicNow has it; not known of every
  // launcher.
  std::optional<absl::Time> failed_at = {};
  int rescales = 0;         // starts before this one that were for another number of ranks
  bool may_shrink = false;  // a death after the last restart leaves a run of fewer ranks
  int shrink_to = 0;        // this start hands its state over to so many ranks; 0: it trains
  std::vector<std::string> jobs_before{};
  int signal_before = 0;

  bool is_first() const { return count == 0 && rescales == 0; }
  // Whether anything of a rank is kept for another start.
  bool comes_back() const { return most > 0 || may_shrink; }
  // Whether this rank's memory is to be kept should it die now.
  bool keeps() const { return count < most || may_shrink; }
};

// From those variables, which Launch and the rank's host set; or from torchrun's
// TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_MAX_RESTARTS. INVALID_ARGUMENT names the variable
// that is not a number.
absl::StatusOr<Restarts> RestartsFrom(const collectives::Environment& environment);

// Where a start that is not the first begins, and what that cost: a line.
struct Beginning {
  bool resumed = false;  // from what the ranks left in memory
  uint64_t step = 0;     // steps that are done
  std::string from{};    // empty: from nothing
  int ranks_before = 0;  // in whose place this start's ranks are; 0: it has the same ranks
};
std::string DescribeStart(const Restarts& restarts, const Beginning& beginning, absl::Time now);

// What keeps this run apart from others of the same job, in what the daemon keeps for it.
std::string RunName(const collectives::RankInfo& info);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RESTARTS_H_
