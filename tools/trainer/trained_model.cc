#include "tools/trainer/trained_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/trainer/fine_tuning.h"
#include "tools/trainer/pipelined_model.h"
#include "tools/trainer/tensor_model.h"

namespace geminid::trainer {
namespace {

// The whole model, in one engine with all ranks.
class UncutModel final : public TrainedModel {
 public:
  explicit UncutModel(const ModelSurroundings& around) : TrainedModel(around) {}

  absl::Status Prepare() {
    return TrainedModel::Prepare(WholeModel(around_.options.model), &around_.world);
  }

  absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) override {
    return engine_->Step(input);
  }
};

// Of the whole model's parameters those that the part has, in its order.
std::vector<zero::Parameter> Select(const std::vector<zero::Parameter>& whole,
                                    const ModelParameters& part) {
  std::vector<zero::Parameter> selected;
  for (const ParameterSpec& spec : part.specs) {
    const auto found = std::ranges::find(whole, spec.name, &zero::Parameter::name);
    selected.push_back(*found);
    selected.back().backward_uses = spec.backward_uses;
  }
  return selected;
}

template <typename Model>
absl::StatusOr<std::unique_ptr<TrainedModel>> Made(const ModelSurroundings& around) {
  auto model = std::make_unique<Model>(around);
  GEMINID_RETURN_IF_ERROR(model->Prepare());
  return model;
}

}  // namespace

absl::Status TrainedModel::Prepare(const ModelPart& part, collectives::Communicator* ranks) {
  const TrainOptions& options = around_.options;
  GEMINID_ASSIGN_OR_RETURN(place_, ModelPlace::Find(around_.session, Tokens::kTogether));
  if (place_->on_gpu() && options.parallel.cuts()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--parallel: a pipeline, cut layers and a cut sequence train on the host alone yet, and "
        "the daemon's "
        "device is ",
        around_.session.device_description().name, "; train on the host, or with data alone"));
  }
  if (options.parallel.sequence > 1) {
    GEMINID_ASSIGN_OR_RETURN(pieces_, around_.mesh.Connect(around_.world, {kSequenceAxis}));
    if (options.parallel.rings()) {
      ring_ = std::make_unique<SequenceRing>(pieces_.get(), around_.threads);
    } else {
      swap_ = std::make_unique<HeadSwap>(pieces_.get());
    }
  }
  GEMINID_ASSIGN_OR_RETURN(whole_, TrainedParameters(options.model, options.frozen));
  GEMINID_RETURN_IF_ERROR(MakeTransformer(part));
  zero::Options zero = options.zero;
  zero.resume = around_.resumes;
  GEMINID_ASSIGN_OR_RETURN(engine_, zero::Engine::Create(&around_.session, ranks, part_, zero));
  source_ = place_->Source(engine_.get(), &around_.session);
  return absl::OkStatus();
}

absl::Status TrainedModel::MakeTransformer(const ModelPart& part) {
  const TrainOptions& options = around_.options;
  if (options.parallel.tensor.size == 1) {
    transformer_ =
        MakeTransformerPart(options.model, options.zero.data_type, part, {}, around_.threads,
                            place_->math(), {.swap = swap_.get(), .ring = ring_.get()});
    part_ = Select(whole_, transformer_->parameters());
    return absl::OkStatus();
  }
  GEMINID_ASSIGN_OR_RETURN(tensor_,
                           TensorRanks::Connect(options, part, around_.mesh, around_.world));
  const MicroBatchShape shape = ShapeOfShare(options, around_.world.WorldSize());
  GEMINID_ASSIGN_OR_RETURN(transformer_, tensor_->MakeModel(shape, around_.threads));
  part_ = tensor_->PartBlocks();
  return absl::OkStatus();
}

absl::StatusOr<double> TrainedModel::Squares(double norm, bool leads) const {
  if (tensor_ != nullptr) return tensor_->Squares(*engine_, norm, leads);
  return leads ? norm * norm : 0;
}

absl::StatusOr<double> TrainedModel::TrainMicroBatches(const GetBatch& get, float gradient_scale) {
  double sum = 0;
  for (int i = 0; i < around_.options.zero.accumulate; ++i) {
    GEMINID_ASSIGN_OR_RETURN(const MicroBatch batch, get(static_cast<uint64_t>(i)));
    GEMINID_ASSIGN_OR_RETURN(const double loss,
                             transformer_->TrainMicroBatch(*source_, batch, gradient_scale));
    sum += loss;
  }
  return sum;
}

absl::StatusOr<double> TrainedModel::Evaluate(const MicroBatch& batch) {
  return transformer_->Evaluate(*source_, batch);
}

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::Create(
    const ModelSurroundings& around) {
  const Parallel& parallel = around.options.parallel;
  if (parallel.pipeline > 1) return Made<PipelinedModel>(around);
  return parallel.tensor.size > 1 ? Made<TensorModel>(around) : Made<UncutModel>(around);
}

}  // namespace geminid::trainer
