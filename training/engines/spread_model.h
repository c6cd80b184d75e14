// A model whose experts are spread over ranks. A rank's engine has this rank's experts and a copy
// of all other parameters. The ranks with the same experts and other data train it together.
#ifndef GEMINID_TRAINING_ENGINES_SPREAD_MODEL_H_
#define GEMINID_TRAINING_ENGINES_SPREAD_MODEL_H_

#include <memory>

#include "training/engines/expert_copies.h"
#include "training/engines/staged_state.h"
#include "training/engines/trained_model.h"

namespace geminid::trainer {

class SpreadModel final : public TrainedModel {
 public:
  explicit SpreadModel(const ModelSurroundings& around) : TrainedModel(around) {}
  ~SpreadModel() override;
  absl::Status Prepare();

  zero::ModelState& state() override { return *state_; }
  // The norm is that of the whole model's gradient, in which what is copied counts once.
  absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) override;

 private:
  absl::StatusOr<double> NormOfModel();

  // Destroyed before the engine, but for what it uses.
  std::unique_ptr<collectives::Communicator> ranks_;  // with the same experts
  std::unique_ptr<ExpertCopies> copies_;
  std::unique_ptr<StagedState> state_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SPREAD_MODEL_H_
