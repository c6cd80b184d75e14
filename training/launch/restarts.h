// The number of restarts of this run so far and the limit, which the launcher tells its ranks.
#ifndef GEMINID_TRAINING_LAUNCH_RESTARTS_H_
#define GEMINID_TRAINING_LAUNCH_RESTARTS_H_

#include <cstdint>
#include <optional>
#include <string>

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

struct Restarts {
  int count = 0;  // starts before this one
  int most = 0;   // 0: whatever dies is gone
  // When the failure was that this start is for, as base::MonotonicNow has it; not known of every
  // launcher.
  std::optional<absl::Time> failed_at = {};

  // Whether this rank's memory is to be kept should it die now.
  bool keeps() const { return count < most; }
};

// From those four variables, which Launch and the rank's host set; or from torchrun's
// TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_MAX_RESTARTS. INVALID_ARGUMENT names the variable
// that is not a number.
absl::StatusOr<Restarts> RestartsFrom(const collectives::Environment& environment);

// Where a start that is not the first begins, and what that cost: a line.
struct Beginning {
  bool resumed = false;  // from what the ranks left in memory
  uint64_t step = 0;     // steps that are done
  std::string from{};    // empty: from nothing
};
std::string DescribeStart(const Restarts& restarts, const Beginning& beginning, absl::Time now);

// What keeps this run apart from others of the same job, in what the daemon keeps for it.
std::string RunName(const collectives::RankInfo& info);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RESTARTS_H_
