// Finds the checkpoint that --resume continues, and reads the run's description in "run.json"
// beside the checkpoint's state.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_RESUMED_RUN_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_RESUMED_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/models/model_config.h"
#include "training/settings/run_description.h"

namespace geminid::trainer {

inline constexpr char kRunName[] = "run.json";

// Writes and reads run.json. DATA_LOSS says what is wrong, and names an unknown format's number.
std::string RunText(const RunDescription& run);
absl::StatusOr<RunDescription> ReadRunText(const std::string& text);

// The description of a checkpoint's run. Empty if the checkpoint has none, as another trainer's;
// only the types if an older version wrote types.json.
absl::StatusOr<RunDescription> ReadRunOf(const std::string& checkpoint);

// The checkpoint that a run with --resume continues; empty if there is none in `save`.
absl::StatusOr<std::optional<ResumedRun>> FindResumed(const std::string& save);

// Adds the older checkpoint with which --resume continues to `why`, the error of this one.
absl::Status WithOlderOne(const std::string& checkpoint, const absl::Status& why);

// INVALID_ARGUMENT names each term that must be the same and is not, with both values. Appends a
// line for each other term that differs to `taken`.
absl::Status CheckTerms(const std::string& checkpoint, const RunTerms& was, const RunTerms& is,
                        std::vector<std::string>* taken);

// INVALID_ARGUMENT if the folder's config.json has another shape or other adapters than `model`.
absl::Status CheckLoadedShape(const std::string& folder, const ModelConfig& model);

// The checkpoints in `save` that the run with this id has written, sorted by step.
absl::StatusOr<std::vector<std::string>> CheckpointsOfRun(const std::string& save,
                                                          const std::string& id);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_RESUMED_RUN_H_
