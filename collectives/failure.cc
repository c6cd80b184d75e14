#include "collectives/failure.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace geminid::collectives {

std::string NameRanks(std::span<const int> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

absl::Status TimeoutError(const Operation& operation, std::span<const int> absent, int waiting_rank,
                          absl::Duration timeout) {
  return absl::DeadlineExceededError(absl::StrFormat(
      "%s: %s did not arrive within %s (rank %d waited); all ranks must make the same calls in the "
      "same order: see what that rank does, or raise the communicator's timeout",
      Describe(operation), NameRanks(absent), absl::FormatDuration(timeout), waiting_rank));
}

absl::Status ShrinkTimeoutError(std::span<const int> absent, int waiting_rank,
                                absl::Duration timeout) {
  return absl::DeadlineExceededError(
      absl::StrFormat("Shrink: %s did not call it within %s, and did not die (rank %d waited); all "
                      "survivors must call Shrink",
                      NameRanks(absent), absl::FormatDuration(timeout), waiting_rank));
}

absl::Status DeathError(int dead_rank) {
  return absl::UnavailableError(
      absl::StrFormat("rank %d died; start it again and connect a new communicator", dead_rank));
}

absl::Status DeathError(const RankDeath& death) {
  if (death.silence == absl::ZeroDuration()) return DeathError(death.rank);
  return absl::UnavailableError(absl::StrFormat(
      "nothing was heard from rank %d at %s for %s: its process, its host or the network failed or "
      "stands still; shrink to the other ranks, or raise GEMINID_SILENCE",
      death.rank, death.address, absl::FormatDuration(death.silence)));
}

absl::Status PresumedDeadError(int rank) {
  return absl::UnavailableError(
      absl::StrFormat("Shrink: the other ranks heard nothing from rank %d for so long that they go "
                      "on without it; end this process",
                      rank));
}

absl::Status LeftError(int gone_rank) {
  return absl::UnavailableError(absl::StrFormat(
      "rank %d left: it destroyed its communicator while others still needed it", gone_rank));
}

absl::Status MismatchError(int rank, const Operation& operation, int other_rank,
                           const Operation& other) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "ranks disagree: rank %d called %s, rank %d called %s; all ranks must make the same calls in "
      "the same order",
      rank, Describe(operation), other_rank, Describe(other)));
}

}  // namespace geminid::collectives
