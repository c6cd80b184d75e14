// Prepares the folder of --save and locks it for one run.
#ifndef GEMINID_TRAINING_ENGINES_SAVE_FOLDER_H_
#define GEMINID_TRAINING_ENGINES_SAVE_FOLDER_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "training/engines/folder_lock.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// kCheck: the launcher only checks that the ranks could take the folder.
enum class FolderClaim { kCheck, kTake, kTakeAgain };

// Makes the folder and locks it while the result lives; returns nothing without --save.
// INVALID_ARGUMENT if the folder has checkpoints and neither --resume nor --save-over was given:
// this run would prune them. kTake with --save-over renames them, and removes the remains of
// interrupted saves. kTakeAgain, after a restart, treats all files as this run's own. `say` gets a
// message if there is no lock.
absl::StatusOr<std::optional<FolderLock>> TakeSaveFolder(
    const TrainOptions& options, FolderClaim claim,
    const std::function<void(const std::string& line)>& say);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SAVE_FOLDER_H_
