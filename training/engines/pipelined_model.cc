#include "training/engines/pipelined_model.h"

#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

// The ranks of the first and of the last stage that have what `mine` has of each layer.
std::vector<int> RanksAtEnds(const collectives::Mesh& mesh, int mine) {
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const int stage = mesh.Coordinate(rank, kPipelineAxis);
    if (mesh.Coordinate(rank, kTensorAxis) != mesh.Coordinate(mine, kTensorAxis)) continue;
    if (mesh.Coordinate(rank, kExpertAxis) != mesh.Coordinate(mine, kExpertAxis)) continue;
    if (stage == 0 || stage + 1 == mesh.SizeOf(kPipelineAxis)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

// One step of this rank's parts, as the schedule asks for it.
class PipelinedModel::StageStep final : public collectives::PipelineStage {
 public:
  StageStep(const std::vector<Part>& parts, const GetBatch& get, float gradient_scale,
            bool in_halves)
      : parts_(parts), get_(get), gradient_scale_(gradient_scale), in_halves_(in_halves) {}

  absl::Status Forward(int part, int micro_batch, std::span<const float> in,
                       std::span<float> out) override {
    const absl::Time began = base::MonotonicNow();
    const Part& one = Of(part);
    GEMINID_RETURN_IF_ERROR(BeginMicroBatch(one));
    GEMINID_ASSIGN_OR_RETURN(const MicroBatch batch, get_(static_cast<uint64_t>(micro_batch)));
    GEMINID_ASSIGN_OR_RETURN((passed_[{part, micro_batch}]),
                             one.transformer->ForwardPart(*one.source, batch, in, out));
    worked_ += base::MonotonicNow() - began;
    return absl::OkStatus();
  }

  absl::Status BackwardInput(int part, int micro_batch, std::span<const float> out_gradient,
                             std::span<float> in_gradient) override {
    const absl::Time began = base::MonotonicNow();
    const Part& one = Of(part);
    GEMINID_RETURN_IF_ERROR(BeginMicroBatch(one));
    auto& passed = passed_.at({part, micro_batch});
    const absl::StatusOr<double> loss =
        in_halves_ ? one.transformer->BackwardPartInput(*passed, gradient_scale_, out_gradient,
                                                        in_gradient)
                   : one.transformer->BackwardPart(std::move(passed), gradient_scale_, out_gradient,
                                                   in_gradient);
    if (!loss.ok()) return loss.status();
    loss_ += *loss;
    if (!in_halves_) EndMicroBatch(part, micro_batch);
    worked_ += base::MonotonicNow() - began;
    return absl::OkStatus();
  }

  // If not in halves, done with the input's: the weights' gradients take the weights' place.
  absl::Status BackwardWeight(int part, int micro_batch) override {
    if (!in_halves_) return absl::OkStatus();
    const absl::Time began = base::MonotonicNow();
    const Part& one = Of(part);
    GEMINID_RETURN_IF_ERROR(BeginMicroBatch(one));
    GEMINID_RETURN_IF_ERROR(
        one.transformer->BackwardPartWeights(std::move(passed_.at({part, micro_batch}))));
    EndMicroBatch(part, micro_batch);
    worked_ += base::MonotonicNow() - began;
    return absl::OkStatus();
  }

  double loss() const { return loss_; }
  absl::Duration worked() const { return worked_; }

 private:
  const Part& Of(int part) const { return parts_[static_cast<size_t>(part)]; }
  void EndMicroBatch(int part, int micro_batch) {
    passed_.erase({part, micro_batch});
    in_micro_batch_ = false;
  }
  // Of the engine, which all parts have: up to the next gradients of any's weights.
  absl::Status BeginMicroBatch(const Part& part) {
    if (std::exchange(in_micro_batch_, true)) return absl::OkStatus();
    return part.source->BeginMicroBatch();
  }

  const std::vector<Part>& parts_;
  const GetBatch& get_;
  const float gradient_scale_;
  const bool in_halves_;  // a backward pass, of which the second half comes later
  // By part and micro-batch: and not gone back yet.
  std::map<std::pair<int, int>, std::unique_ptr<PassedForward>> passed_;
  bool in_micro_batch_ = false;
  double loss_ = 0;
  absl::Duration worked_;
};

absl::Status PipelinedModel::Prepare() {
  const TrainOptions& options = around_.options;
  GEMINID_RETURN_IF_ERROR(PrepareParts());
  GEMINID_ASSIGN_OR_RETURN(stages_, ConnectAlong(TrafficAxis::kPipeline, {kPipelineAxis}));
  const MicroBatchShape shape = ShapeOfShare(options, around_.world.WorldSize());
  shape_ = options.parallel.PipelineOf(options.zero.accumulate);
  GEMINID_ASSIGN_OR_RETURN(
      executor_, collectives::PipelineExecutor::Make(
                     shape_, {}, parts_.front().transformer->BoundaryElements(shape.tokens()),
                     *stages_, between_));
  if (experts_ != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(with_experts_,
                             around_.mesh.Connect(around_.world, {kPipelineAxis, kExpertAxis}));
  }
  GEMINID_RETURN_IF_ERROR(
      PrepareState(with_experts_ == nullptr ? stages_.get() : with_experts_.get()));
  return PrepareTable();
}

absl::Status PipelinedModel::PrepareTable() {
  const TrainOptions& options = around_.options;
  if (!options.model.tied_output() || (stage() > 0 && !is_last())) return absl::OkStatus();
  // In ZBV both ends are in the first stage, whose engine has one table for them.
  if (in_halves()) return absl::OkStatus();
  // The model's first part embeds, its last one outputs.
  const Part& part = is_last() ? parts_.back() : parts_.front();
  const ModelParameters& parameters = part.transformer->parameters();
  const auto table = static_cast<size_t>(parameters.token_table);
  const zero::ParameterId id = part.ids[table];
  if (!mine_[static_cast<size_t>(id)].trainable) return absl::OkStatus();
  const std::vector<int> at_ends = RanksAtEnds(around_.mesh, around_.world.Rank());
  GEMINID_ASSIGN_OR_RETURN(auto ends, around_.world.Subset("table", at_ends));
  traffic_.Add(TrafficAxis::kTable, at_ends, [ranks = ends.get()] { return ranks->Stats(); });
  table_ = std::make_unique<SharedTable>(engine_.get(), id, parameters.specs[table].elements(),
                                         std::move(ends), between_);
  return absl::OkStatus();
}

absl::StatusOr<double> PipelinedModel::TrainMicroBatches(const GetBatch& get,
                                                         float gradient_scale) {
  const absl::Time began = base::MonotonicNow();
  StageStep step(parts_, get, gradient_scale, in_halves());
  GEMINID_RETURN_IF_ERROR(executor_->Run(step));
  around_.session.AddStall(StallCause::kCollective, base::MonotonicNow() - began - step.worked());
  return step.loss();
}

absl::StatusOr<double> PipelinedModel::CountedTwice(double* norm) {
  GEMINID_ASSIGN_OR_RETURN(double twice, PartModel::CountedTwice(norm));
  if (table_ == nullptr) return twice;
  GEMINID_ASSIGN_OR_RETURN(const double squares, table_->SumGradients());
  const bool counts =
      tensor_ == nullptr || tensor_->Keeps(parts_.back().transformer->parameters().token_table);
  if (is_last() && counts) twice += squares;
  GEMINID_ASSIGN_OR_RETURN(*norm, engine_->GradientNorm());
  return twice;
}

absl::StatusOr<double> PipelinedModel::Evaluate(const MicroBatch& batch) {
  constexpr char kWhat[] = "transfer buffers between stages of an evaluation";
  double loss = 0;
  collectives::FloatBlock out;
  for (int i = 0; i < shape_.parts; ++i) {
    const Part& part = parts_[static_cast<size_t>(i)];
    const ModelPart& of = part.transformer->parameters().part;
    const size_t elements = part.transformer->BoundaryElements(batch.shape.tokens());
    const int position = collectives::PositionOf(shape_, stage(), i);
    const int before = of.embeds ? -1 : collectives::PlaceAt(shape_, position - 1).stage;
    const int after = of.outputs ? -1 : collectives::PlaceAt(shape_, position + 1).stage;
    collectives::FloatBlock in;
    if (before == stage()) {
      in = std::move(out);  // of the part before, which is here
    } else if (!of.embeds) {
      GEMINID_ASSIGN_OR_RETURN(
          in, collectives::AllocateOrTellRanks(*stages_, between_, kWhat, elements));
      GEMINID_RETURN_IF_ERROR(stages_->Receive(in.all(), before));
    }
    GEMINID_ASSIGN_OR_RETURN(out, collectives::AllocateOrTellRanks(*stages_, between_, kWhat,
                                                                   of.outputs ? 0 : elements));
    GEMINID_ASSIGN_OR_RETURN(
        const double sum, part.transformer->EvaluatePart(*part.source, batch, in.all(), out.all()));
    if (!of.outputs && after != stage()) GEMINID_RETURN_IF_ERROR(stages_->Send(out.all(), after));
    loss += sum;
  }
  return loss;
}

}  // namespace geminid::trainer
