// The statuses and messages with which all backends report failures of the group.
#ifndef GEMINID_COLLECTIVES_FAILURE_H_
#define GEMINID_COLLECTIVES_FAILURE_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/operation.h"

namespace geminid::collectives {

// "rank 3", "ranks 1, 3".
std::string NameRanks(std::span<const int> ranks);

absl::Status TimeoutError(const Operation& operation, std::span<const int> absent, int waiting_rank,
                          absl::Duration timeout);
// For ranks that neither join the new group nor are known to be dead.
absl::Status ShrinkTimeoutError(std::span<const int> absent, int waiting_rank,
                                absl::Duration timeout);
absl::Status DeathError(int dead_rank);
// How a rank's death was noticed.
struct RankDeath {
  int rank = 0;
  absl::Duration silence = absl::ZeroDuration();  // for so long; zero: its connection ended
  std::string address{};                          // of its host, if the rank was silent
};
absl::Status DeathError(const RankDeath& death);
// For a rank that stood still until the others took it for dead.
absl::Status PresumedDeadError(int rank);
absl::Status LeftError(int gone_rank);
absl::Status MismatchError(int rank, const Operation& operation, int other_rank,
                           const Operation& other);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_FAILURE_H_
