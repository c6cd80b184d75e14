// Chooses how to train a model on a cluster: the mesh, the micro-batches and recomputation. It
// plans one rank of each stage with the planner of running jobs. Pure: equal arguments give equal
// choices.
#ifndef GEMINID_TRAINING_MESHES_CHOOSE_H_
#define GEMINID_TRAINING_MESHES_CHOOSE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "training/forecast/forecast.h"
#include "training/meshes/mesh_cost.h"
#include "training/meshes/meshes.h"

namespace geminid::parallel {

struct Candidate {
  Setting setting;
  Cost cost;
};

// A setting and the plan of one rank of each stage. All ranks of a stage have the same plan.
struct PlannedMesh {
  Setting setting;
  Cost cost;
  bool fits = false;
  // The stage that needs or lacks the most memory. Its plan has one micro-batch and one update.
  forecast::Forecast fullest;
  std::uint64_t fullest_layers = 0;
  // The memory of one rank; if the setting does not fit, the need of the fullest stage.
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;
  // The fields below are set if the setting fits.
  double step_seconds = 0;
  double tokens_per_second = 0;
  // Parts of the step, on the slowest stage. Gathers and reductions run beside the passes and may
  // take longer. The bubble is the idle share of all stages' time.
  double pass_seconds = 0;     // of all micro-batches
  double sharing_seconds = 0;  // gathers and reductions
  double update_seconds = 0;   // the part that no computation hides
  double bubble = 0;
  double received_bytes = 0;  // as in Cost, with the planned gathers
};
absl::StatusOr<PlannedMesh> PlanMesh(const forecast::Model& model, const forecast::Job& job,
                                     const Setting& setting);
// As CostOfRank.
absl::StatusOr<PlannedMesh> PlanRank(const forecast::Model& model, const forecast::Job& rank_job,
                                     const Setting& setting);

struct ChooseOptions {
  std::optional<MeshSpec> only =
      std::nullopt;                 // chooses only micro-batches and recomputation for this mesh
  std::uint64_t micro_batches = 0;  // 0: chosen
  // The most settings to plan. Those with the shortest least time are planned first.
  std::size_t most_planned = 48;
  // Also plans one setting of each kind of mesh (with or without a pipeline, 1F1B or ZBV, sharded
  // sequences, each mode of tensor) that is not among them, for comparison.
  bool kinds = true;
  // Whether a setting may be chosen, if the model can be partitioned for it; null: always.
  std::function<bool(const Setting&)> usable = nullptr;
};

struct Choice {
  // The planned settings: those that fit come first; then the order is by shorter step, fewer
  // received bytes, fewer partners, and finally the order of MeshesOf and SettingsOf.
  std::vector<PlannedMesh> planned;
  std::size_t for_comparison = 0;  // planned settings that are there for their kind alone
  std::size_t settings = 0;        // settings that are usable, for this model and batch
  std::size_t too_large = 0;       // of these: activations alone need more than a device
  std::size_t meshes_not_cut = 0;  // meshes into which the model cannot be partitioned
  std::size_t bounded_out = 0;     // settings whose least time is at least the chosen step's
  std::size_t not_planned = 0;     // other settings, left out because of most_planned
  bool fits() const { return !planned.empty() && planned.front().fits; }
};
// The choice is the fastest of all settings if not_planned is 0. If no setting fits, that is an
// answer and no error: the planned settings are then those whose activations exceed the device
// least. INVALID_ARGUMENT for a mesh that does not suit the model or the ranks; the message has the
// nearest that do.
absl::StatusOr<Choice> Choose(const forecast::Model& model, const forecast::Job& job,
                              const ChooseOptions& options);

// The mesh of `parsed` for the job's number of ranks. INVALID_ARGUMENT as Choose.
absl::StatusOr<MeshSpec> MeshForJob(const forecast::Model& model, const forecast::Job& job,
                                    const ParsedMesh& parsed);

// The mesh that is nearest to `mesh`, which does not fit, of those that suit the model and fit. It
// plans a few meshes.
absl::StatusOr<std::optional<PlannedMesh>> NearestThatFits(const forecast::Model& model,
                                                           const forecast::Job& job,
                                                           const MeshSpec& mesh);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_CHOOSE_H_
