#include "training/engines/save_folder.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/checkpoint/folder.h"

namespace geminid::trainer {
namespace {

absl::Status CheckNoOthers(const TrainOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> others,
                           checkpoint::FinishedIn(options.save));
  if (others.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--save ", options.save, ": it holds checkpoints of another run, the newest ", others.back(),
      "; give --resume to go on from there, another folder, or --save-over to replace them"));
}

// After a restart the rank that had the lock may be about to end, on a host that is out of reach.
absl::StatusOr<FolderLock> TakeLock(const TrainOptions& options, FolderClaim claim) {
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  const int64_t attempts = claim == FolderClaim::kTakeAgain ? options.timeout / kPause : 0;
  absl::StatusOr<FolderLock> lock = FolderLock::Take(options.save);
  for (int64_t i = 0; i < attempts && absl::IsFailedPrecondition(lock.status()); ++i) {
    absl::SleepFor(kPause);
    lock = FolderLock::Take(options.save);
  }
  if (lock.ok()) return lock;
  return absl::Status(lock.status().code(),
                      absl::StrCat("--save: ", std::string(lock.status().message())));
}

}  // namespace

absl::StatusOr<std::optional<FolderLock>> TakeSaveFolder(
    const TrainOptions& options, FolderClaim claim,
    const std::function<void(const std::string& line)>& say) {
  if (options.save.empty()) return std::nullopt;
  GEMINID_RETURN_IF_ERROR(checkpoint::MakeFolder(options.save));
  GEMINID_ASSIGN_OR_RETURN(FolderLock lock, TakeLock(options, claim));
  const bool begins = claim != FolderClaim::kTakeAgain;
  if (begins && !options.resume && !options.save_over) {
    GEMINID_RETURN_IF_ERROR(CheckNoOthers(options));
  }
  if (claim == FolderClaim::kCheck) return std::optional(std::move(lock));
  if (!lock.without_lock().empty()) {
    say(absl::StrCat("geminid-train: --save ", options.save, ": its file system has no locks (",
                     lock.without_lock(),
                     "), so the run goes on without one; start no other run in this folder\n"));
  } else {
    GEMINID_RETURN_IF_ERROR(checkpoint::RemoveUnfinished(options.save));
  }
  if (begins && options.save_over) GEMINID_RETURN_IF_ERROR(checkpoint::SetAside(options.save));
  return std::optional(std::move(lock));
}

}  // namespace geminid::trainer
