// Which actions of a pipeline are done, and when: all dependences between actions are here.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_PROGRESS_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_PROGRESS_H_

#include <cstddef>
#include <limits>
#include <vector>

#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// The forward of a position needs that of the one before; the backward of a position that of the
// one after, and its own forward; the weights' half the input's half.
class PipelineProgress {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  PipelineProgress(const PipelineShape& shape, const PipelineCosts& costs);

  // From when on the action may run: kNever while what it needs has not run.
  double ReadyAt(int stage, const PipelineAction& action) const;
  double CostOf(PipelineWork work) const;
  bool IsDone(int stage, const PipelineAction& action) const;
  void Finish(int stage, const PipelineAction& action, double at);

 private:
  struct Times {  // of the ends, by micro-batch and position
    double forward = kNever, input = kNever, weight = kNever;
  };
  size_t IndexOf(int micro_batch, int position) const;
  const Times& At(int micro_batch, int position) const;
  // `at` as it reaches `stage` from the stage of `position`.
  double Arrived(double at, int position, int stage) const;

  const PipelineShape shape_;
  const PipelineCosts costs_;
  std::vector<Times> times_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_PROGRESS_H_
