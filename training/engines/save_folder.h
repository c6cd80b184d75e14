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

// kLooks: the launcher only checks that the ranks could take the folder.
enum class Taking { kLooks, kTakes, kTakesAgain };

// Makes the folder and locks it while the result lives; returns nothing without --save.
// INVALID_ARGUMENT if the folder has checkpoints and neither --resume nor --save-over was given:
// this run would prune them. kTakes with --save-over renames them, and removes the remains of
// interrupted saves. kTakesAgain, after a restart, treats all files as this run's own. `say` gets a
// message if there is no lock.
absl::StatusOr<std::optional<FolderLock>> TakeSaveFolder(
    const TrainOptions& options, Taking taking,
    const std::function<void(const std::string& line)>& say);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SAVE_FOLDER_H_
