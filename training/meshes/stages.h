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

// One range per stage, in order; each has a layer at least, so there are at most `layers` stages.
// The dearest stage is as cheap as can be, where all layers cost the same and the last stage has
// the output layer beside them, which costs as much as `output_layers`; of the cuts that give that,
// the one with the most layers beside the output layer.
std::vector<forecast::ModelPart> SplitLayers(std::uint64_t layers, double output_layers,
                                             int stages);

// Of the slowest stage and one micro-batch, which it passes part by part.
struct PassSeconds {
  double forward = 0;
  double backward = 0;
  double weights = 0;   // of that, the gradients of weights, which no other stage waits for
  double transfer = 0;  // to the next stage
};
struct PipelineStep {
  double seconds = 0;
  double bubble = 0;  // of the stages' time
};
// 1F1B of equal stages by training/nn/parallel/stages's timeline; one stage has no transfers.
absl::StatusOr<PipelineStep> StepOf(int stages, std::uint64_t micro_batches,
                                    const PassSeconds& pass);

// ZBV, in the order that geminid-train runs, which does not depend on the times.
collectives::PipelineShape ShapeInHalves(int stages, std::uint64_t micro_batches);
absl::StatusOr<PipelineStep> StepInHalves(const collectives::PipelineShape& shape,
                                          const collectives::PipelineSchedule& schedule,
                                          const PassSeconds& pass);
// No order takes less: the last stage does all of its work after the first micro-batch has come
// there.
double LeastStepInHalves(int stages, std::uint64_t micro_batches, const PassSeconds& pass);

// Micro-batches whose activations the stage holds at most, in 1F1B.
std::uint64_t InFlight(int stages, std::uint64_t micro_batches, int stage);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_STAGES_H_
