#include "tools/trainer/spread_model.h"

#include <algorithm>
#include <cmath>

#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 20;

// Of the engine's parameters those that no expert of this rank has.
std::vector<zero::ParameterId> Copied(const ModelParameters& model,
                                      const std::vector<zero::Parameter>& parameters) {
  std::vector<bool> own(parameters.size());
  for (const RoutedPlaces& routed : model.routed) {
    for (const ExpertPlaces& expert : routed.experts) {
      for (const zero::ParameterId id : expert.all) own[static_cast<size_t>(id)] = true;
    }
  }
  std::vector<zero::ParameterId> copied;
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    if (!own[i] && parameters[i].trainable) copied.push_back(zero::ParameterId{i});
  }
  return copied;
}

}  // namespace

// The engine ends its part of collectives while its communicator is there.
SpreadModel::~SpreadModel() {
  state_.reset();
  parts_.clear();
  source_.reset();
  engine_.reset();
}

absl::Status SpreadModel::Prepare() {
  GEMINID_ASSIGN_OR_RETURN(ranks_, ConnectAlong(TrafficAxis::kData, {kDataAxis}));
  const RankShare share = ShareOf(around_.options, around_.mesh, around_.world.Rank());
  GEMINID_RETURN_IF_ERROR(TrainedModel::Prepare(share.parts, ranks_.get()));
  copied_ = Copied(parts_.front().transformer->parameters(), mine_);
  GEMINID_ASSIGN_OR_RETURN(state_,
                           StagedState::Create(whole_, mine_, engine_.get(), experts_.get()));
  return CheckCuts();
}

absl::Status SpreadModel::CheckCuts() const {
  std::vector<int64_t> shards;
  for (const zero::ParameterId id : copied_) {
    for (const zero::ShardRange& range : engine_->ShardOf(id)) {
      shards.push_back(static_cast<int64_t>(range.offset));
      shards.push_back(static_cast<int64_t>(range.elements));
    }
  }
  std::vector<int64_t> count = {static_cast<int64_t>(shards.size())}, counts(1);
  GEMINID_RETURN_IF_ERROR(experts_->AllReduce(count, counts, collectives::ReduceOp::kMax));
  std::vector<int64_t> most(shards.size());
  const bool as_many = counts[0] == count[0];
  if (as_many && !shards.empty()) {
    GEMINID_RETURN_IF_ERROR(experts_->AllReduce(shards, most, collectives::ReduceOp::kMax));
  }
  if (as_many && most == shards) return absl::OkStatus();
  return absl::InternalError("engines of equally many experts cut what they share differently");
}

absl::StatusOr<double> SpreadModel::AddUpCopies() {
  double squares = 0;
  std::vector<float> piece;
  for (const zero::ParameterId id : copied_) {
    for (const zero::ShardRange& range : engine_->ShardOf(id)) {
      for (uint64_t done = 0; done < range.elements; done += kPieceElements) {
        piece.resize(std::min(kPieceElements, range.elements - done));
        const uint64_t at = range.offset + done;
        GEMINID_RETURN_IF_ERROR(engine_->ReadGradient(id, at, piece));
        GEMINID_RETURN_IF_ERROR(experts_->AllReduce(piece, piece, collectives::ReduceOp::kSum,
                                                    {.scale = 1.0 / experts_->WorldSize()}));
        GEMINID_RETURN_IF_ERROR(engine_->WriteGradient(id, at, piece));
        // As it is kept: it may have been rounded.
        GEMINID_RETURN_IF_ERROR(engine_->ReadGradient(id, at, piece));
        for (const float value : piece) squares += double{value} * value;
      }
    }
  }
  return squares;
}

// All parts together. One that is not finite is so on all of them.
absl::StatusOr<double> SpreadModel::NormOfModel() {
  GEMINID_RETURN_IF_ERROR(engine_->GradientNorm().status());
  const absl::Time began = absl::Now();
  GEMINID_ASSIGN_OR_RETURN(const double copied, AddUpCopies());
  around_.session.AddStall(StallCause::kCollective, absl::Now() - began);
  GEMINID_ASSIGN_OR_RETURN(const double norm, engine_->GradientNorm());
  const double twice = experts_->Rank() == 0 ? 0 : copied;
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
