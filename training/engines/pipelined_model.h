// One stage of a pipeline: one part of the model, or several that are not adjacent. An engine
// trains them together with the other ranks of the stage. The stage exchanges activations with the
// stages before and after it.
//
// For the engine, a micro-batch is one backward pass of one part; the forward passes that the
// schedule has before it are evaluation. This works because weights do not change within a step and
// the model itself keeps what a backward pass needs. So gradients are summed over micro-batches in
// the same order as without a pipeline. In ZBV, a micro-batch is the half of a backward pass that
// computes weight gradients; the other half is evaluation, too.
#ifndef GEMINID_TRAINING_ENGINES_PIPELINED_MODEL_H_
#define GEMINID_TRAINING_ENGINES_PIPELINED_MODEL_H_

#include <memory>

#include "training/engines/part_model.h"
#include "training/engines/shared_table.h"
#include "training/nn/parallel/stages/executor.h"

namespace geminid::trainer {

class PipelinedModel final : public PartModel {
 public:
  explicit PipelinedModel(const ModelDependencies& around) : PartModel(around) {}
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
  std::unique_ptr<collectives::Communicator> stages_;  // one rank of each stage
  std::unique_ptr<collectives::PipelineExecutor> executor_;
  std::unique_ptr<SharedTable> table_;  // null: this stage shares no table with another
  std::unique_ptr<collectives::Communicator> with_experts_;  // a rank of each stage and expert part
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_PIPELINED_MODEL_H_
