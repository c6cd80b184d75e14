// Chooses how to train a model on a cluster: the mesh, the micro-batches and recomputation. The
// planner of running jobs plans one rank of each stage. Pure: the same question gets the same
// answer.
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

// One setting with a rank of each stage planned. Ranks of a stage are alike.
struct PlannedMesh {
  Setting setting;
  Cost cost;
  bool fits = false;
  // Of the stage that takes most, or lacks most. Its plan is of one micro-batch and one update.
  forecast::Forecast fullest;
  std::uint64_t fullest_layers = 0;
  // Of one rank; where it does not fit, what the fullest would take.
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;
  // The rest is of what fits.
  double step_seconds = 0;
  double tokens_per_second = 0;
  // Parts of the step: the slowest stage's passes, of which the sharing may be longer than what it
  // runs beside; what its update is not hidden by; and the share of all stages' time that is
  // bubble.
  double pass_seconds = 0;     // of all micro-batches
  double sharing_seconds = 0;  // gathers and reductions, beside that
  double update_seconds = 0;
  double bubble = 0;
  double received_bytes = 0;  // as Cost's, with the gathers that are planned
};
absl::StatusOr<PlannedMesh> PlanMesh(const forecast::Model& model, const forecast::Job& job,
                                     const Setting& setting);
// As CostOfRank.
absl::StatusOr<PlannedMesh> PlanRank(const forecast::Model& model, const forecast::Job& rank_job,
                                     const Setting& setting);

struct ChooseOptions {
  std::optional<MeshSpec> only =
      std::nullopt;                 // this mesh, with the best micro-batches and recomputation
  std::uint64_t micro_batches = 0;  // 0: chosen
  // Settings that are planned; those whose least time is shortest come first.
  std::size_t most_planned = 48;
  // Plans one more of each kind of mesh (with or without a pipeline, in 1F1B or ZBV, a cut
  // sequence, and each mode of tensor) that is not among them, to compare with.
  bool kinds = true;
  // Whether a setting may be chosen, of those that the model can be cut for; null: each.
  std::function<bool(const Setting&)> usable = nullptr;
};

struct Choice {
  // What was planned, in this order: what fits before what does not; then the shorter step, fewer
  // bytes received, fewer partners, and the order of MeshesOf and SettingsOf.
  std::vector<PlannedMesh> planned;
  std::size_t for_comparison = 0;  // of them, planned for their kind alone
  std::size_t settings = 0;        // that are usable, can be cut so and have whole micro-batches
  std::size_t too_large = 0;       // of these, whose activations alone are more than a device
  std::size_t meshes_not_cut = 0;  // meshes that the model cannot be cut into
  std::size_t bounded_out = 0;     // settings whose least time is no less than the chosen step's
  std::size_t not_planned = 0;     // others that were not planned, after most_planned were
  bool fits() const { return !planned.empty() && planned.front().fits; }
};
// The fastest of all settings where nothing is left in not_planned. Not fitting is an answer; then
// the planned ones are those that lack least by their activations. Errors: INVALID_ARGUMENT for a
// mesh that the model or the ranks do not fit, with the nearest that do.
absl::StatusOr<Choice> Choose(const forecast::Model& model, const forecast::Job& job,
                              const ChooseOptions& options);

// `parsed` for the ranks of the job. INVALID_ARGUMENT as Choose.
absl::StatusOr<MeshSpec> MeshForJob(const forecast::Model& model, const forecast::Job& job,
                                    const ParsedMesh& parsed);

// Of the meshes that the model can be cut into and that fit, those nearest to one that does not.
// Plans a few.
absl::StatusOr<std::optional<PlannedMesh>> NearestThatFits(const forecast::Model& model,
                                                           const forecast::Job& job,
                                                           const MeshSpec& mesh);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_CHOOSE_H_
