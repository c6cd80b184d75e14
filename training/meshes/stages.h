// Partitions a model's layers into the stages of a pipeline, and computes the time of the pipeline
// from the times of its stages. Pure.
#ifndef GEMINID_TRAINING_MESHES_STAGES_H_
#define GEMINID_TRAINING_MESHES_STAGES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "training/forecast/rank_work.h"
#include "training/nn/parallel/stages/schedule.h"

namespace geminid::parallel {

// One range per stage, in order. Each has at least one layer, so there are at most `layers` stages.
// All layers cost the same, and the output layer, which is in the last stage, costs as much as
// `output_layers` of them. The split minimises the cost of the most expensive stage; of equal
// splits it is the one with the most layers in the last stage.
std::vector<forecast::ModelPart> SplitLayers(std::uint64_t layers, double output_layers,
                                             int stages);

// The times of one micro-batch on the slowest stage.
struct PassSeconds {
  double forward = 0;
  double backward = 0;
  double weights = 0;   // the part of it for weight gradients, for which no other stage waits
  double transfer = 0;  // to the next stage
};
struct PipelineStep {
  double seconds = 0;
  double bubble = 0;  // the idle share of the stages' time
};
// The step of equal stages in 1F1B, by the timeline of training/nn/parallel/stages. One stage has
// no transfers.
absl::StatusOr<PipelineStep> StepOf(int stages, std::uint64_t micro_batches,
                                    const PassSeconds& pass);

// The same in ZBV, in the order that geminid-train runs. That order does not depend on the times.
collectives::PipelineShape ShapeInHalves(int stages, std::uint64_t micro_batches);
absl::StatusOr<PipelineStep> StepInHalves(const collectives::PipelineShape& shape,
                                          const collectives::PipelineSchedule& schedule,
                                          const PassSeconds& pass);
// A lower bound for every order: the last stage does all of its work after the first micro-batch
// has reached it.
double LeastStepInHalves(int stages, std::uint64_t micro_batches, const PassSeconds& pass);

// The most micro-batches whose activations the stage holds in 1F1B.
std::uint64_t InFlight(int stages, std::uint64_t micro_batches, int stage);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_STAGES_H_
