// When each action of a schedule runs, if each takes its cost and waits only for what it needs.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_TIMELINE_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_TIMELINE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

struct PipelineTimeline {
  struct Span {
    double begin = 0;
    double end = 0;
  };
  std::vector<std::vector<Span>> spans;  // as the schedule
  double end = 0;                        // of the last action
  std::vector<double> busy;              // by stage
  std::vector<int> most_in_flight;       // by stage: parts' activations held at once
  // Of the time that all stages have until the end, the share in which they have nothing to do.
  double bubble() const;
};

// INVALID_ARGUMENT naming the stage and what it waits for if the schedule cannot end, does
// something twice, or leaves something out. A part's activations are held from the begin of its
// forward to the end of its weights' gradients.
absl::StatusOr<PipelineTimeline> RunSchedule(const PipelineShape& shape,
                                             const PipelineSchedule& schedule,
                                             const PipelineCosts& costs);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_TIMELINE_H_
