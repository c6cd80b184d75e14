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

// Who asks: the process that starts the ranks looks whether they could take the folder.
enum class Taking { kLooks, kTakes, kTakesAgain };

// Makes the folder and locks it as long as the result lives; nothing without --save.
// INVALID_ARGUMENT if checkpoints are there and neither --resume nor --save-over was given: they
// would be pruned for this run's. kTakes: with --save-over they are renamed, and what interrupted
// saves left is removed. kTakesAgain, after a restart: what is there is this run's own. `say` is
// given a line where there is no lock.
absl::StatusOr<std::optional<FolderLock>> TakeSaveFolder(
    const TrainOptions& options, Taking taking,
    const std::function<void(const std::string& line)>& say);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SAVE_FOLDER_H_
