// The axis pipeline of --parallel, in the planner and in the trainer:
//
//   pipeline=4    pipeline=1f1b:4    pipeline=interleaved:4:chunks=2    pipeline=zbv:4
//
// Pure.
#ifndef GEMINID_TRAINING_MESHES_PIPELINE_AXIS_H_
#define GEMINID_TRAINING_MESHES_PIPELINE_AXIS_H_

#include <string>

#include "absl/status/statusor.h"
#include "training/nn/parallel/stages/schedule.h"

namespace geminid::parallel {

struct PipelineAxis {
  collectives::PipelineKind kind = collectives::PipelineKind::k1F1B;
  int stages = 1;
  int chunks = 1;  // parts of the model in each stage; 2 in ZBV
};

// INVALID_ARGUMENT says what is wrong: an unknown schedule, a number of stages that is not from 1
// to `most`, chunks for a schedule that takes none, or fewer than 2 for one that does.
absl::StatusOr<PipelineAxis> ReadPipeline(const std::string& value, int most);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_PIPELINE_AXIS_H_
