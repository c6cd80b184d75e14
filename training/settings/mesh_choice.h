// Chooses the mesh of --parallel auto: among the meshes that the trainer supports, the one with the
// shortest step by geminictl plan (training/meshes/choose.h). Pure.
#ifndef GEMINID_TRAINING_SETTINGS_MESH_CHOICE_H_
#define GEMINID_TRAINING_SETTINGS_MESH_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "training/forecast/model.h"
#include "training/meshes/place.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The model as the planner knows it; adapters are left out.
forecast::Model ForecastModelOf(const ModelConfig& config);

using RanksPlace = parallel::Place;

// One that was planned, in the order in which it would be chosen.
struct PlannedRow {
  std::string mesh = {};
  uint64_t micro_batches = 0;
  bool keeps_activations = false;
  bool fits = false;
  double step_seconds = 0;  // of what fits
  double received_bytes = 0;
  uint64_t device_bytes = 0;
};
inline constexpr size_t kRowsOfChoice = 10;

struct MeshChoice {
  std::string mesh = {};  // as --parallel has it
  Parallel parallel = {};
  // Of the step's sequences, options.batch x options.accumulate, which stay as they are; a
  // micro-batch is no larger than options.batch.
  uint64_t batch = 0;
  int accumulate = 1;
  // Whether activations are kept, as it was planned. Unset: it was not planned, or is not the
  // planner's to say.
  std::optional<bool> keeps_activations = std::nullopt;
  std::string why = {};  // a line of words
  // Of the rank that chose: what it chose from, the first of them, and for which run.
  std::vector<PlannedRow> rows = {};
  std::optional<parallel::PlacedRun> run = std::nullopt;
};

// Of a choice what another rank, or another start, needs to have the same; and that from there.
// INTERNAL for words that are none.
std::string WordsOf(const MeshChoice& choice);
absl::StatusOr<MeshChoice> ChoiceFrom(const TrainOptions& options, const std::string& words);

// INVALID_ARGUMENT where nothing can be chosen: sequences of a step that the ranks do not share
// out evenly, adapters, and numbers of ranks that the model cannot be cut for.
absl::StatusOr<MeshChoice> ChooseMesh(const TrainOptions& options, const RanksPlace& place);

// What of ranks and run the planner needs for the same answer, with all meshes that train.
parallel::PlacedRun PlacedRunOf(const TrainOptions& options, const RanksPlace& place);

// `options` with what was chosen.
TrainOptions WithChoice(TrainOptions options, const MeshChoice& choice);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_MESH_CHOICE_H_
