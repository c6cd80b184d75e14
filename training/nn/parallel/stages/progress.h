// Tracks which actions of a pipeline are done, and when. This class knows all dependences of
// actions.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_PROGRESS_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_PROGRESS_H_

#include <cstddef>
#include <limits>
#include <vector>

#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// A forward needs the forward of the position before. A backward needs the backward of the position
// after and its own forward. A backward of the weights needs the backward of the input.
class PipelineProgress {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  PipelineProgress(const PipelineShape& shape, const PipelineCosts& costs);

  // The time from which the action may run; kNever if an action that it needs has not run.
  double ReadyAt(int stage, const PipelineAction& action) const;
  double CostOf(PipelineWork work) const;
  bool IsDone(int stage, const PipelineAction& action) const;
  void Finish(int stage, const PipelineAction& action, double at);

 private:
  struct Times {  // the times of completion, by micro-batch and position
    double forward = kNever, input = kNever, weight = kNever;
  };
  size_t IndexOf(int micro_batch, int position) const;
  const Times& At(int micro_batch, int position) const;
  // The time when the result of `position`, ready at `at`, reaches `stage`.
  double Arrived(double at, int position, int stage) const;

  const PipelineShape shape_;
  const PipelineCosts costs_;
  std::vector<Times> times_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_PROGRESS_H_
