// Lower bounds on the time of a step on a mesh, in closed form and without planning. Pure.
#ifndef GEMINID_TRAINING_MESHES_MESH_COST_H_
#define GEMINID_TRAINING_MESHES_MESH_COST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"
#include "training/meshes/mesh_rank_work.h"
#include "training/meshes/meshes.h"
#include "training/meshes/stages.h"

namespace geminid::parallel {

// The job of one rank: the batch is a micro-batch, and activations are those of the setting.
absl::StatusOr<forecast::Job> RankJobOf(const forecast::Job& job, const Setting& setting);

// A stage's layers, and the most micro-batches whose activations it holds. In ZBV that depends on
// the schedule, and this is a lower bound.
struct Stage {
  forecast::ModelPart layers;              // those of all its parts, as one range
  std::vector<forecast::ModelPart> parts;  // in the order of the forward pass
  double in_flight = 1;
};
// `rank_job` comes from RankJobOf. Stages get layers by the time that these take.
std::vector<Stage> StagesOf(const forecast::Model& model, const forecast::Job& rank_job,
                            const Setting& setting);

// The most micro-batches in flight of a ZBV stage with these actions.
double InFlightInHalves(const forecast::Model& model, const forecast::Job& rank_job,
                        const MeshSpec& mesh, const Stage& stage,
                        const std::vector<collectives::PipelineAction>& actions);

// The costs of one micro-batch on one stage.
struct PassCost {
  double forward_seconds = 0;
  double backward_seconds = 0;  // with recomputation
  double weight_seconds = 0;    // the part of it for weight gradients
  double compute_seconds = 0;   // computation in both passes
  double received_bytes = 0;    // from the ranks of the grid and of the sequence
};
PassCost PassCostOf(const forecast::Model& model, const forecast::Job& rank_job,
                    const MeshRankWork& work);

struct Cost {
  // No plan takes less time. It is the pipeline's time with the slowest stage's computation and
  // exchanges, or with its gathers and reductions once each if these take longer.
  double least_step_seconds = 0;
  double compute_seconds = 0;   // of the slowest stage, all micro-batches
  double exchange_seconds = 0;  // the time that its exchanges add to that
  // The bytes that a rank of the slowest stage receives in a step: from the ranks of its grid and
  // sequence, from other stages, and in gathers and reductions once each.
  double received_bytes = 0;
  // The number of ranks from which a rank in the middle receives: those of its groups along each
  // axis of the grid, those that share its weights, and those of the stages before and after.
  int partners = 0;
  // No plan needs less device memory: the saved activations and the workspace of the fullest stage.
  std::uint64_t least_device_bytes = 0;
};
// The setting has passed CheckMesh and MicroBatchOf.
absl::StatusOr<Cost> CostOf(const forecast::Model& model, const forecast::Job& job,
                            const Setting& setting);
// The same for a micro-batch of any size, as if every size could be divided.
absl::StatusOr<Cost> CostOfRank(const forecast::Model& model, const forecast::Job& rank_job,
                                const Setting& setting);

int PartnersOf(const MeshSpec& mesh);

// The time from one stage to the next for one micro-batch.
double TransferSeconds(const forecast::Job& job, const MeshSpec& mesh, const MeshRankWork& work);

// The bytes that a rank in the middle receives from other stages for one micro-batch.
double BoundaryBytesReceived(const MeshSpec& mesh, const MeshRankWork& work);

// The bytes of the gradients of a tied table that both ends of a pipeline sum once a step.
double TiedTableBytes(const forecast::Model& model, const MeshSpec& mesh);

// How often ranks that share weights gather them and reduce their gradients.
struct SharingTurns {
  double in_pass = 0;  // gathers and reductions in each micro-batch
  double in_step = 0;  // in each step
};
// For ZeRO stages 1 and 2, in which weights stay on the device between updates. In stage 3 the plan
// decides how often weights are gathered; once at least.
SharingTurns TurnsOf(const Setting& setting);
// The device memory that stages 1 and 2 use all the time: in stage 1 fp32 sums of gradients over
// micro-batches, and in both a buffer for the gradients of an operator.
std::uint64_t StayingBytes(const forecast::Job& job, const Setting& setting,
                           const MeshRankWork& work);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESH_COST_H_
