// The ZBV schedule of schedule.h. What waits for nobody, the weights' gradients, fills the gaps.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_ZERO_BUBBLE_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_ZERO_BUBBLE_H_

#include "absl/status/statusor.h"
#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// `shape` is of two parts per stage. The shortest of 216 greedy ones. Cost: as many times
// O(stages^2 micro_batches). INTERNAL: a schedule that does not end, which no shape should give.
absl::StatusOr<PipelineSchedule> ZeroBubbleSchedule(const PipelineShape& shape,
                                                    const PipelineCosts& costs);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_ZERO_BUBBLE_H_
