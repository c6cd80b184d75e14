// A model of which a rank's engine has a part: a shard of each layer (tensor parallelism), some
// experts and a copy of everything else, or a stage of a pipeline (pipelined_model.h). The ranks
// with the same part and other data train it together. All engines use the whole gradient's norm.
#ifndef GEMINID_TRAINING_ENGINES_PART_MODEL_H_
#define GEMINID_TRAINING_ENGINES_PART_MODEL_H_

#include <memory>

#include "training/engines/expert_copies.h"
#include "training/engines/staged_state.h"
#include "training/engines/tensor_state.h"
#include "training/engines/trained_model.h"

namespace geminid::trainer {

class PartModel : public TrainedModel {
 public:
  explicit PartModel(const ModelDependencies& around) : TrainedModel(around) {}
  ~PartModel() override;
  absl::Status Prepare();

  zero::ModelState& state() override { return *state_; }
  // The norm is that of the whole model's gradient. Parameters that several ranks have count once.
  absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) override;

 protected:
  // Makes this rank's parts, without their state.
  absl::Status PrepareParts();
  // `parts`: one rank of each part of the model, in order; null: the model has shards of layers
  // alone.
  absl::Status PrepareState(collectives::Communicator* parts);
  // Reduces the gradients that engines have in common, and sets `norm` to the engine's new norm.
  // Returns the part of its sum of squares that another engine counts too.
  virtual absl::StatusOr<double> CountedTwice(double* norm);

  std::unique_ptr<collectives::Communicator> ranks_;  // the ranks with the same part

 private:
  absl::StatusOr<double> NormOfModel();

  // Destroyed before the engine.
  std::unique_ptr<ExpertCopies> copies_;  // null: experts are not spread
  std::unique_ptr<StagedState> staged_;
  std::unique_ptr<TensorState> joined_;
  zero::ModelState* state_ = nullptr;  // of the whole model
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_PART_MODEL_H_
