// Computes when each action of a schedule runs. An action takes its cost, and waits only for the
// actions that it needs.
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
  std::vector<std::vector<Span>> spans;  // in the order of the schedule
  double end = 0;                        // of the last action
  std::vector<double> busy;              // by stage
  std::vector<int> most_in_flight;       // by stage: the most activations of parts held at once
  // The share of the time of all stages, until the end, in which they are idle.
  double bubble() const;
};

// INVALID_ARGUMENT if the schedule cannot end, repeats an action, or lacks one; the message names
// the stage and the action for which it waits. A part's activations are held from the begin of its
// forward to the end of its weights' gradients.
absl::StatusOr<PipelineTimeline> RunSchedule(const PipelineShape& shape,
                                             const PipelineSchedule& schedule,
                                             const PipelineCosts& costs);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_TIMELINE_H_
