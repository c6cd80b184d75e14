// One stage of a pipeline: a part of the model, or several with parts of other stages in between,
// trained by an engine together with the other ranks of the stage, and the way to the stages before
// and after it.
//
// A micro-batch of the engine is one backward pass of one part, with the forward passes that the
// schedule has before it as evaluation: weights do not change within a step, and what a forward
// pass leaves for its backward is the model's own. So gradients are summed over the micro-batches
// as without a pipeline, in the same order. In ZBV it is the second half of a backward pass, that
// of the weights; the first is evaluation, too.
#ifndef GEMINID_TRAINING_ENGINES_PIPELINED_MODEL_H_
#define GEMINID_TRAINING_ENGINES_PIPELINED_MODEL_H_

#include <memory>

#include "training/engines/part_model.h"
#include "training/engines/shared_table.h"
#include "training/nn/parallel/stages/executor.h"

namespace geminid::trainer {

class PipelinedModel final : public PartModel {
 public:
  explicit PipelinedModel(const ModelSurroundings& around) : PartModel(around) {}
  absl::Status Prepare();

  absl::StatusOr<double> TrainMicroBatches(const GetBatch& get, float gradient_scale) override;
  absl::StatusOr<double> Evaluate(const MicroBatch& batch) override;

 private:
  class StageStep;

  int stage() const { return stages_->Rank(); }
  bool is_last() const { return stage() + 1 == stages_->WorldSize(); }
  bool in_halves() const { return shape_.kind == collectives::PipelineKind::kZeroBubbleV; }
  absl::Status PrepareTable();
  absl::StatusOr<double> CountedTwice(double* norm) override;

  collectives::PipelineShape shape_;
  std::unique_ptr<collectives::Communicator> stages_;  // one rank of each
  std::unique_ptr<collectives::PipelineExecutor> executor_;
  std::unique_ptr<SharedTable> table_;  // null: no two stages share one, or this is neither
  std::unique_ptr<collectives::Communicator> with_experts_;  // one of each stage and experts
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_PIPELINED_MODEL_H_
