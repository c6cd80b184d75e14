// Finds the checkpoint that --resume continues, and reads what "run.json" beside its state says of
// the run.
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

// The text of run.json, and back. DATA_LOSS says what is wrong, and names another format's number.
std::string RunText(const RunDescription& run);
absl::StatusOr<RunDescription> ReadRunText(const std::string& text);

// What a checkpoint says of its run. Nothing where it says nothing, as one of another trainer; the
// types alone for one of a version that wrote types.json.
absl::StatusOr<RunDescription> ReadRunOf(const std::string& checkpoint);

// The checkpoint that a run with --resume goes on from; nothing if there is none in `save`.
absl::StatusOr<std::optional<ResumedRun>> FindResumed(const std::string& save);

// INVALID_ARGUMENT names each term that must be the same and is not, with both values. Adds the
// words of the others that differ to `taken`.
absl::Status CheckTerms(const std::string& checkpoint, const RunTerms& was, const RunTerms& is,
                        std::vector<std::string>* taken);

// INVALID_ARGUMENT if a folder's config.json says another shape or other adapters than `model`.
absl::Status CheckLoadedShape(const std::string& folder, const ModelConfig& model);

// The checkpoints in `save` that the run with this id has written, by step.
absl::StatusOr<std::vector<std::string>> CheckpointsOfRun(const std::string& save,
                                                          const std::string& id);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_RESUMED_RUN_H_
