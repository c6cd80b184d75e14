#include "training/meshes/stages.h"

#include <algorithm>

#include "base/status_macros.h"
#include "training/nn/parallel/stages/schedule.h"
#include "training/nn/parallel/stages/timeline.h"

namespace geminid::parallel {

std::vector<forecast::ModelPart> SplitLayers(std::uint64_t layers, double output_layers,
                                             int stages) {
  const auto others = static_cast<std::uint64_t>(stages - 1);
  std::uint64_t last = layers;
  if (others > 0) {
    const auto dearest = [&](std::uint64_t with_output) {
      const std::uint64_t most = (layers - with_output + others - 1) / others;
      return std::max(static_cast<double>(most), static_cast<double>(with_output) + output_layers);
    };
    last = 1;
    for (std::uint64_t count = 2; count + others <= layers; ++count) {
      if (dearest(count) <= dearest(last)) last = count;
    }
  }
  std::vector<forecast::ModelPart> ranges;
  std::uint64_t first = 0;
  for (std::uint64_t stage = 0; stage < others; ++stage) {
    const std::uint64_t left = others - stage;
    const std::uint64_t count = (layers - last - first + left - 1) / left;
    ranges.push_back(
        {.first_layer = first, .layers = count, .embeds = stage == 0, .outputs = false});
    first += count;
  }
  ranges.push_back({.first_layer = first, .layers = last, .embeds = others == 0, .outputs = true});
  return ranges;
}

absl::StatusOr<PipelineStep> StepOf(int stages, std::uint64_t micro_batches,
                                    const PassSeconds& pass) {
  const collectives::PipelineShape shape = {.kind = collectives::PipelineKind::k1F1B,
                                            .stages = stages,
                                            .micro_batches = static_cast<int>(micro_batches)};
  // Which half of a backward takes how long is the same to 1F1B.
  const collectives::PipelineCosts costs = {.forward = pass.forward,
                                            .backward_input = pass.backward,
                                            .backward_weight = 0,
                                            .transfer = stages == 1 ? 0 : pass.transfer};
  GEMINID_ASSIGN_OR_RETURN(const collectives::PipelineSchedule schedule,
                           collectives::MakePipelineSchedule(shape, costs));
  GEMINID_ASSIGN_OR_RETURN(const collectives::PipelineTimeline timeline,
                           collectives::RunSchedule(shape, schedule, costs));
  return PipelineStep{.seconds = timeline.end, .bubble = timeline.bubble()};
}

collectives::PipelineShape ShapeInHalves(int stages, std::uint64_t micro_batches) {
  return {.kind = collectives::PipelineKind::kZeroBubbleV,
          .stages = stages,
          .micro_batches = static_cast<int>(micro_batches),
          .parts = 2};
}

absl::StatusOr<PipelineStep> StepInHalves(const collectives::PipelineShape& shape,
                                          const collectives::PipelineSchedule& schedule,
                                          const PassSeconds& pass) {
  const collectives::PipelineCosts costs = {
      .forward = pass.forward / shape.parts,
      .backward_input = (pass.backward - pass.weights) / shape.parts,
      .backward_weight = pass.weights / shape.parts,
      .transfer = pass.transfer};
  GEMINID_ASSIGN_OR_RETURN(const collectives::PipelineTimeline timeline,
                           collectives::RunSchedule(shape, schedule, costs));
  return PipelineStep{.seconds = timeline.end, .bubble = timeline.bubble()};
}

double LeastStepInHalves(int stages, std::uint64_t micro_batches, const PassSeconds& pass) {
  constexpr double kParts = 2;
  return static_cast<double>(micro_batches) * (pass.forward + pass.backward) +
         (stages - 1) * (pass.forward / kParts + pass.transfer);
}

std::uint64_t InFlight(int stages, std::uint64_t micro_batches, int stage) {
  return std::min(micro_batches, static_cast<std::uint64_t>(stages - stage));
}

}  // namespace geminid::parallel
