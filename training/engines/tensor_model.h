// A model whose layers are sharded over ranks (tensor parallelism). Data-parallel ranks that have
// the same shards share one engine. All engines share the norm of the whole gradient.
#ifndef GEMINID_TRAINING_ENGINES_TENSOR_MODEL_H_
#define GEMINID_TRAINING_ENGINES_TENSOR_MODEL_H_

#include <memory>

#include "training/engines/tensor_state.h"
#include "training/engines/trained_model.h"

namespace geminid::trainer {

class TensorModel final : public TrainedModel {
 public:
  explicit TensorModel(const ModelSurroundings& around) : TrainedModel(around) {}
  ~TensorModel() override;
  absl::Status Prepare();

  zero::ModelState& state() override { return *state_; }
  // The norm is that of the whole model's gradient, in which what several ranks have counts once.
  absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) override;

 private:
  // Destroyed before the engine, but for what it uses.
  std::unique_ptr<collectives::Communicator> ranks_;  // with the same blocks
  std::unique_ptr<TensorState> state_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_TENSOR_MODEL_H_
