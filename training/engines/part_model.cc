#include "training/engines/part_model.h"

#include <cmath>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"

namespace geminid::trainer {

// The engine ends its part of collectives while its communicator is there.
PartModel::~PartModel() {
  joined_.reset();
  staged_.reset();
  copies_.reset();
  parts_.clear();
  source_.reset();
  engine_.reset();
}

absl::Status PartModel::Prepare() {
  GEMINID_RETURN_IF_ERROR(PrepareParts());
  return PrepareState(experts_.get());
}

absl::Status PartModel::PrepareParts() {
  GEMINID_ASSIGN_OR_RETURN(ranks_, ConnectAlong(TrafficAxis::kData, {kDataAxis, kSequenceAxis}));
  const RankShare share = ShareOf(around_.options, around_.mesh, around_.world.Rank());
  return TrainedModel::Prepare(share.parts, ranks_.get());
}

absl::Status PartModel::PrepareState(collectives::Communicator* parts) {
  if (experts_ != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(
        copies_, ExpertCopies::Create(CopiedParameters(), engine_.get(), experts_.get(), between_));
  }
  state_ = engine_.get();
  if (parts != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(
        staged_, StagedState::Create(tensor_ == nullptr ? whole_ : tensor_->ModelBlocks(), mine_,
                                     engine_.get(), parts));
    state_ = staged_.get();
  }
  if (tensor_ == nullptr) return absl::OkStatus();
  joined_ = tensor_->JoinState(state_);
  state_ = joined_.get();
  return absl::OkStatus();
}

absl::StatusOr<double> PartModel::CountedTwice(double* norm) {
  if (copies_ == nullptr) return 0;
  const absl::Time began = base::MonotonicNow();
  GEMINID_ASSIGN_OR_RETURN(const double twice, copies_->AddUp());
  around_.session.AddStall(StallCause::kCollective, base::MonotonicNow() - began);
  GEMINID_ASSIGN_OR_RETURN(*norm, engine_->GradientNorm());
  return twice;
}

// All parts together. A gradient that is not finite is so on all of them.
absl::StatusOr<double> PartModel::NormOfModel() {
  GEMINID_ASSIGN_OR_RETURN(double norm, engine_->GradientNorm());
  GEMINID_ASSIGN_OR_RETURN(const double twice, CountedTwice(&norm));
  GEMINID_ASSIGN_OR_RETURN(const double own, Squares(norm, ranks_->Rank() == 0));
  std::vector<double> squares = {own - twice};
  GEMINID_RETURN_IF_ERROR(around_.world.AllReduce(squares, squares, collectives::ReduceOp::kSum));
  return squares[0] < 0 ? 0 : std::sqrt(squares[0]);
}

absl::StatusOr<zero::StepResult> PartModel::Step(const zero::Engine::StepInput& input) {
  zero::Engine::StepInput with_norm = input;
  GEMINID_ASSIGN_OR_RETURN(with_norm.gradient_norm, NormOfModel());
  return engine_->Step(with_norm);
}

}  // namespace geminid::trainer
