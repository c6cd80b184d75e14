// How often the ranks of this run were started again, and may be: as their launcher says.
#ifndef GEMINID_TOOLS_TRAINER_RESTARTS_H_
#define GEMINID_TOOLS_TRAINER_RESTARTS_H_

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
inline constexpr char kFailedAtVariable[] = "GEMINID_FAILED_AT";  // nanoseconds since 1970

struct Restarts {
  int count = 0;                             // starts before this one
  int most = 0;                              // 0: whatever dies is gone
  std::optional<absl::Time> failed_at = {};  // why this one; not known of every launcher

  // Whether this rank's memory is to be kept should it die now.
  bool keeps() const { return count < most; }
};

// From those three variables, which Launch sets; or from torchrun's TORCHELASTIC_RESTART_COUNT and
// TORCHELASTIC_MAX_RESTARTS. INVALID_ARGUMENT names the variable that is not a number.
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

#endif  // GEMINID_TOOLS_TRAINER_RESTARTS_H_
