// A model of which a rank's engine has a part: its shard of each layer (tensor parallelism), its
// experts beside a copy of all else, or its stage of a pipeline (pipelined_model.h). The ranks with
// the same part and other data train it together. All engines share the norm of the whole gradient.
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
  explicit PartModel(const ModelSurroundings& around) : TrainedModel(around) {}
  ~PartModel() override;
  absl::Status Prepare();

  zero::ModelState& state() override { return *state_; }
  // The norm is that of the whole model's gradient, in which what several ranks have counts once.
  absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) override;

 protected:
  // Of this rank's parts, without their state.
  absl::Status PrepareParts();
  // `parts`: a rank of each part of the model, in order; null: shards of layers are all of it.
  absl::Status PrepareState(collectives::Communicator* parts);
  // Reduces the gradients that engines have in common, after which the engine's `norm` is another.
  // The sum of squares that this rank's engine counts in it and another one counts, too.
  virtual absl::StatusOr<double> CountedTwice(double* norm);

  std::unique_ptr<collectives::Communicator> ranks_;  // with the same part

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
