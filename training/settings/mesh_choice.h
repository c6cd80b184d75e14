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

// The model as the planner describes it, without adapters.
forecast::Model ForecastModelOf(const ModelConfig& config);

using RanksPlace = parallel::Place;

// A planned mesh. Rows are in the order of preference.
struct PlannedRow {
  std::string mesh = {};
  uint64_t micro_batches = 0;
  bool keeps_activations = false;
  bool fits = false;
  double step_seconds = 0;  // if it fits
  double received_bytes = 0;
  uint64_t device_bytes = 0;
};
inline constexpr size_t kRowsOfChoice = 10;

struct MeshChoice {
  std::string mesh = {};  // as --parallel has it
  Parallel parallel = {};
  // The micro-batch, of at most options.batch sequences. batch x accumulate is the same product as
  // in the options.
  uint64_t batch = 0;
  int accumulate = 1;
  // Whether the plan keeps activations. Unset: there is no plan, or the plan does not decide it.
  std::optional<bool> keeps_activations = std::nullopt;
  std::string why = {};  // the reason, as a line
  // On the rank that chose: the first kRowsOfChoice candidates, and the run that they are for.
  std::vector<PlannedRow> rows = {};
  std::optional<parallel::PlacedRun> run = std::nullopt;
};

// Writes and reads the part of a choice that other ranks and later starts need. INTERNAL: `words`
// does not come from WordsOf.
std::string WordsOf(const MeshChoice& choice);
absl::StatusOr<MeshChoice> ChoiceFrom(const TrainOptions& options, const std::string& words);

// INVALID_ARGUMENT if there is no choice: the ranks do not divide the sequences of a step, the
// model has adapters, or it cannot be partitioned for this number of ranks.
absl::StatusOr<MeshChoice> ChooseMesh(const TrainOptions& options, const RanksPlace& place);

// The facts about ranks and run from which the planner makes the same choice, with all meshes that
// the trainer supports.
parallel::PlacedRun PlacedRunOf(const TrainOptions& options, const RanksPlace& place);

// `options` with the chosen mesh and micro-batches.
TrainOptions WithChoice(TrainOptions options, const MeshChoice& choice);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_MESH_CHOICE_H_
