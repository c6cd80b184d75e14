#include "training/engines/tensor_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/status_macros.h"

namespace geminid::trainer {

// The engine ends its part of collectives while its communicator is there.
TensorModel::~TensorModel() {
  state_.reset();
  parts_.clear();
  source_.reset();
  engine_.reset();
}

absl::Status TensorModel::Prepare() {
  GEMINID_ASSIGN_OR_RETURN(ranks_, ConnectAlong(TrafficAxis::kData, {kDataAxis, kSequenceAxis}));
  GEMINID_RETURN_IF_ERROR(TrainedModel::Prepare({WholeModel(around_.options.model)}, ranks_.get()));
  state_ = tensor_->JoinState(engine_.get());
  return absl::OkStatus();
}

// A gradient that is not finite is so for all.
absl::StatusOr<zero::StepResult> TensorModel::Step(const zero::Engine::StepInput& input) {
  GEMINID_ASSIGN_OR_RETURN(const double norm, engine_->GradientNorm());
  GEMINID_ASSIGN_OR_RETURN(const double own, Squares(norm, ranks_->Rank() == 0));
  std::vector<double> squares = {own};
  GEMINID_RETURN_IF_ERROR(around_.world.AllReduce(squares, squares, collectives::ReduceOp::kSum));
  zero::Engine::StepInput with_norm = input;
  with_norm.gradient_norm = squares[0] < 0 ? 0 : std::sqrt(squares[0]);
  return engine_->Step(with_norm);
}

}  // namespace geminid::trainer
