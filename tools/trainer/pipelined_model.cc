#include "tools/trainer/pipelined_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

// One step of this rank's part, as the schedule asks for it.
class StageStep final : public collectives::PipelineStage {
 public:
  StageStep(Transformer& transformer, ParameterSource& source, const TrainedModel::GetBatch& get,
            float gradient_scale)
      : transformer_(transformer), source_(source), get_(get), gradient_scale_(gradient_scale) {}

  absl::Status Forward(int /*part*/, int micro_batch, std::span<const float> in,
                       std::span<float> out) override {
    const absl::Time began = absl::Now();
    GEMINID_RETURN_IF_ERROR(BeginMicroBatch());
    GEMINID_ASSIGN_OR_RETURN(const MicroBatch batch, get_(static_cast<uint64_t>(micro_batch)));
    GEMINID_ASSIGN_OR_RETURN(passed_[micro_batch],
                             transformer_.ForwardPart(source_, batch, in, out));
    worked_ += absl::Now() - began;
    return absl::OkStatus();
  }

  absl::Status BackwardInput(int /*part*/, int micro_batch, std::span<const float> out_gradient,
                             std::span<float> in_gradient) override {
    const absl::Time began = absl::Now();
    GEMINID_RETURN_IF_ERROR(BeginMicroBatch());
    GEMINID_ASSIGN_OR_RETURN(
        const double loss,
        transformer_.BackwardPart(std::move(passed_.extract(micro_batch).mapped()), gradient_scale_,
                                  out_gradient, in_gradient));
    loss_ += loss;
    in_micro_batch_ = false;
    worked_ += absl::Now() - began;
    return absl::OkStatus();
  }

  // Done with the input's: the weights' gradients take the weights' place.
  absl::Status BackwardWeight(int /*part*/, int /*micro_batch*/) override {
    return absl::OkStatus();
  }

  double loss() const { return loss_; }
  absl::Duration worked() const { return worked_; }

 private:
  absl::Status BeginMicroBatch() {
    if (std::exchange(in_micro_batch_, true)) return absl::OkStatus();
    return source_.BeginMicroBatch();
  }

  Transformer& transformer_;
  ParameterSource& source_;
  const TrainedModel::GetBatch& get_;
  const float gradient_scale_;
  std::map<int, std::unique_ptr<PassedForward>> passed_;  // and not gone back yet
  bool in_micro_batch_ = false;                           // of the engine
  double loss_ = 0;
  absl::Duration worked_;
};

// The ranks of the first and of the last stage that have what `mine` has of each layer.
std::vector<int> RanksAtEnds(const collectives::Mesh& mesh, int mine) {
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const int stage = mesh.Coordinate(rank, kPipelineAxis);
    if (mesh.Coordinate(rank, kTensorAxis) != mesh.Coordinate(mine, kTensorAxis)) continue;
    if (stage == 0 || stage + 1 == mesh.SizeOf(kPipelineAxis)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

// The engine ends its part of collectives while its communicator is there.
PipelinedModel::~PipelinedModel() {
  joined_.reset();
  state_.reset();
  table_.reset();
  executor_.reset();
  source_.reset();
  engine_.reset();
}

absl::Status PipelinedModel::Prepare() {
  const TrainOptions& options = around_.options;
  const RankShare share = ShareOf(options, around_.mesh, around_.world.Rank());
  GEMINID_ASSIGN_OR_RETURN(ranks_, around_.mesh.Connect(around_.world, {kDataAxis, kSequenceAxis}));
  GEMINID_ASSIGN_OR_RETURN(stages_, around_.mesh.Connect(around_.world, {kPipelineAxis}));
  GEMINID_RETURN_IF_ERROR(TrainedModel::Prepare(share.part, ranks_.get()));
  const MicroBatchShape shape = ShapeOfShare(options, around_.world.WorldSize());
  GEMINID_ASSIGN_OR_RETURN(
      executor_,
      collectives::PipelineExecutor::Make(
          {.stages = options.parallel.pipeline, .micro_batches = options.zero.accumulate}, {},
          transformer_->BoundaryElements(shape.tokens()), *stages_));
  GEMINID_ASSIGN_OR_RETURN(
      state_, StagedState::Create(tensor_ == nullptr ? whole_ : tensor_->ModelBlocks(), part_,
                                  engine_.get(), stages_.get()));
  if (tensor_ != nullptr) joined_ = tensor_->JoinState(state_.get());
  if (!options.model.tied_output() || (stage() > 0 && !is_last())) return absl::OkStatus();
  const ModelParameters& parameters = transformer_->parameters();
  const auto table = static_cast<size_t>(parameters.token_table);
  if (!part_[table].trainable) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(
      auto ends, around_.world.Subset("table", RanksAtEnds(around_.mesh, around_.world.Rank())));
  table_ = std::make_unique<SharedTable>(engine_.get(), parameters.token_table,
                                         parameters.specs[table].elements(), std::move(ends));
  return absl::OkStatus();
}

zero::ModelState& PipelinedModel::state() {
  if (joined_ != nullptr) return *joined_;
  return *state_;
}

absl::StatusOr<double> PipelinedModel::TrainMicroBatches(const GetBatch& get,
                                                         float gradient_scale) {
  const absl::Time began = absl::Now();
  StageStep step(*transformer_, *source_, get, gradient_scale);
  GEMINID_RETURN_IF_ERROR(executor_->Run(step));
  around_.session.AddStall(StallCause::kCollective, absl::Now() - began - step.worked());
  return step.loss();
}

// All stages together. One that is not finite is so on all of them.
absl::StatusOr<double> PipelinedModel::NormOfModel() {
  GEMINID_ASSIGN_OR_RETURN(double norm, engine_->GradientNorm());
  double twice = 0;  // this rank's shard of what two stages count
  if (table_ != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(const double squares, table_->SumGradients());
    const bool counts =
        tensor_ == nullptr || tensor_->Keeps(transformer_->parameters().token_table);
    if (is_last() && counts) twice = squares;
    GEMINID_ASSIGN_OR_RETURN(norm, engine_->GradientNorm());
  }
  GEMINID_ASSIGN_OR_RETURN(const double own, Squares(norm, ranks_->Rank() == 0));
  std::vector<double> squares = {own - twice};
  GEMINID_RETURN_IF_ERROR(around_.world.AllReduce(squares, squares, collectives::ReduceOp::kSum));
  return squares[0] < 0 ? 0 : std::sqrt(squares[0]);
}

absl::StatusOr<zero::StepResult> PipelinedModel::Step(const zero::Engine::StepInput& input) {
  zero::Engine::StepInput with_norm = input;
  GEMINID_ASSIGN_OR_RETURN(with_norm.gradient_norm, NormOfModel());
  return engine_->Step(with_norm);
}

absl::StatusOr<double> PipelinedModel::Evaluate(const MicroBatch& batch) {
  const size_t elements = transformer_->BoundaryElements(batch.shape.tokens());
  std::vector<float> in(stage() > 0 ? elements : 0);
  std::vector<float> out(is_last() ? 0 : elements);
  if (!in.empty()) GEMINID_RETURN_IF_ERROR(stages_->Receive(in, stage() - 1));
  GEMINID_ASSIGN_OR_RETURN(const double loss, transformer_->EvaluatePart(*source_, batch, in, out));
  if (!out.empty()) GEMINID_RETURN_IF_ERROR(stages_->Send(out, stage() + 1));
  return loss;
}

}  // namespace geminid::trainer
