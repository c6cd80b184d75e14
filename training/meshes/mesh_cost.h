// Lower bounds on the time of a step on a mesh, in closed form, before anything is planned. Pure.
#ifndef GEMINID_TRAINING_MESHES_MESH_COST_H_
#define GEMINID_TRAINING_MESHES_MESH_COST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"
#include "training/meshes/cut_work.h"
#include "training/meshes/meshes.h"
#include "training/meshes/stages.h"

namespace geminid::parallel {

// The job of one rank: the batch is a micro-batch, and activations are those of the setting.
absl::StatusOr<forecast::Job> RankJobOf(const forecast::Job& job, const Setting& setting);

// A stage's layers, and the micro-batches whose activations it holds at most: in ZBV, where that
// takes the schedule, at least.
struct Stage {
  forecast::ModelPart layers;              // those of its parts, as if they followed each other
  std::vector<forecast::ModelPart> parts;  // in the order in which tokens pass them
  double in_flight = 1;
};
// `rank_job` is of RankJobOf. Layers are split by the time that they take.
std::vector<Stage> StagesOf(const forecast::Model& model, const forecast::Job& rank_job,
                            const Setting& setting);

// In ZBV, of a stage that works through these actions.
double InFlightInHalves(const forecast::Model& model, const forecast::Job& rank_job,
                        const MeshSpec& mesh, const Stage& stage,
                        const std::vector<collectives::PipelineAction>& actions);

// Of one micro-batch on one stage.
struct PassCost {
  double forward_seconds = 0;
  double backward_seconds = 0;  // recomputation too
  double weight_seconds = 0;    // of that, the gradients of weights
  double compute_seconds = 0;   // of both
  double received_bytes = 0;    // between the ranks of a grid and of a sequence
};
PassCost PassCostOf(const forecast::Model& model, const forecast::Job& rank_job,
                    const CutWork& work);

struct Cost {
  // No plan takes less: the slowest stage's computation and exchanges, or its gathers and
  // reductions at least once each, in a pipeline.
  double least_step_seconds = 0;
  double compute_seconds = 0;   // of the slowest stage, all micro-batches
  double exchange_seconds = 0;  // what its exchanges add to that
  // Received by a rank of the slowest stage in a step: between the ranks of a grid and of a
  // sequence, from other stages, and of gathers and reductions once each.
  double received_bytes = 0;
  // Distinct ranks that a rank in the middle receives from: those of its groups along each axis of
  // the grid, those that share its weights, and the stages before and after.
  int partners = 0;
  // No plan needs less of a device: what is saved and the workspace, of the fullest stage.
  std::uint64_t least_device_bytes = 0;
};
// The setting is good (CheckMesh, MicroBatchOf).
absl::StatusOr<Cost> CostOf(const forecast::Model& model, const forecast::Job& job,
                            const Setting& setting);
// The same of a micro-batch of any size, cut as if all sizes could be.
absl::StatusOr<Cost> CostOfRank(const forecast::Model& model, const forecast::Job& rank_job,
                                const Setting& setting);

int PartnersOf(const MeshSpec& mesh);

// From one stage to the next, of one micro-batch.
double TransferSeconds(const forecast::Job& job, const MeshSpec& mesh, const CutWork& work);

// What a rank in the middle receives from other stages for one micro-batch.
double BoundaryBytesReceived(const MeshSpec& mesh, const CutWork& work);

// Where a tied table is at both ends of a pipeline, its gradients are added up once a step.
double TiedTableBytes(const forecast::Model& model, const MeshSpec& mesh);

// How often ranks that share weights gather them and add up their gradients.
struct SharingTurns {
  double in_pass = 0;  // of both, with each micro-batch
  double in_step = 0;  // once
};
// In ZeRO's stages below the third, in which weights stay on the device from an update to the next.
// In the third they are gathered as the plan says, once at least.
SharingTurns TurnsOf(const Setting& setting);
// What of a device these take all the time: in the first stage sums of gradients over micro-batches
// in fp32, and in both a place for the gradients of an operator.
std::uint64_t StayingBytes(const forecast::Job& job, const Setting& setting, const CutWork& work);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESH_COST_H_
