// The ZBV schedule of schedule.h. The gradients of weights, for which no stage waits, fill the
// gaps.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_ZERO_BUBBLE_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_ZERO_BUBBLE_H_

#include "absl/status/statusor.h"
#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// `shape` has two parts per stage. Returns the shortest of 216 greedy schedules, each of cost
// O(stages^2 micro_batches). INTERNAL: the schedule does not end, which no shape should cause.
absl::StatusOr<PipelineSchedule> ZeroBubbleSchedule(const PipelineShape& shape,
                                                    const PipelineCosts& costs);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_ZERO_BUBBLE_H_
