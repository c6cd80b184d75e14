#include "training/engines/spread_model.h"

#include <cmath>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"

namespace geminid::trainer {

// The engine ends its part of collectives while its communicator is there.
SpreadModel::~SpreadModel() {
  state_.reset();
  copies_.reset();
  parts_.clear();
  source_.reset();
  engine_.reset();
}

absl::Status SpreadModel::Prepare() {
  GEMINID_ASSIGN_OR_RETURN(ranks_, ConnectAlong(TrafficAxis::kData, {kDataAxis}));
  const RankShare share = ShareOf(around_.options, around_.mesh, around_.world.Rank());
  GEMINID_RETURN_IF_ERROR(TrainedModel::Prepare(share.parts, ranks_.get()));
  GEMINID_ASSIGN_OR_RETURN(
      copies_, ExpertCopies::Create(CopiedParameters(), engine_.get(), experts_.get(), between_));
  GEMINID_ASSIGN_OR_RETURN(state_,
                           StagedState::Create(whole_, mine_, engine_.get(), experts_.get()));
  return absl::OkStatus();
}

// All parts together. One that is not finite is so on all of them.
absl::StatusOr<double> SpreadModel::NormOfModel() {
  GEMINID_RETURN_IF_ERROR(engine_->GradientNorm().status());
  const absl::Time began = base::MonotonicNow();
  GEMINID_ASSIGN_OR_RETURN(const double twice, copies_->AddUp());
  around_.session.AddStall(StallCause::kCollective, base::MonotonicNow() - began);
  GEMINID_ASSIGN_OR_RETURN(const double norm, engine_->GradientNorm());
  std::vector<double> squares = {(ranks_->Rank() == 0 ? norm * norm : 0) - twice};
  GEMINID_RETURN_IF_ERROR(around_.world.AllReduce(squares, squares, collectives::ReduceOp::kSum));
  return squares[0] < 0 ? 0 : std::sqrt(squares[0]);
}

absl::StatusOr<zero::StepResult> SpreadModel::Step(const zero::Engine::StepInput& input) {
  zero::Engine::StepInput with_norm = input;
  GEMINID_ASSIGN_OR_RETURN(with_norm.gradient_norm, NormOfModel());
  return engine_->Step(with_norm);
}

}  // namespace geminid::trainer
