#include "training/engines/trained_model.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "geminid/optimizer.h"
#include "training/engines/host_ranks.h"
#include "training/engines/part_model.h"
#include "training/engines/pipelined_model.h"
#include "training/models/fine_tuning.h"
#include "training/models/working_set.h"
#include "training/nn/part_source.h"
#include "training/ranks/driver_watch.h"
#include "training/ranks/engine_source.h"
#include "training/settings/rank_share.h"
#include "training/settings/tensor_share.h"
#include "training/transformer/activations.h"
#include "training/transformer/attention_sublayer.h"

namespace geminid::trainer {
namespace {

// The whole model, in one engine with all ranks.
class UncutModel final : public TrainedModel {
 public:
  explicit UncutModel(const ModelDependencies& around) : TrainedModel(around) {}

  absl::Status Prepare() {
    return TrainedModel::Prepare({WholeModel(around_.options.model)}, &around_.world);
  }

  absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) override {
    return engine_->Step(input);
  }
};

// Adds to `selected` the whole model's parameters that the part has, in its order: under which
// numbers. What another part has, too, is there once.
std::vector<zero::ParameterId> Select(const std::vector<zero::Parameter>& whole,
                                      const ModelParameters& part,
                                      std::vector<zero::Parameter>* selected) {
  const auto by_name = [](const std::vector<zero::Parameter>& parameters) {
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < parameters.size(); ++i) places.emplace(parameters[i].name, i);
    return places;
  };
  const auto of_whole = by_name(whole);
  auto of_selected = by_name(*selected);
  std::vector<zero::ParameterId> ids;
  for (const ParameterSpec& spec : part.specs) {
    const auto [place, is_new] = of_selected.emplace(spec.name, selected->size());
    ids.push_back(static_cast<zero::ParameterId>(place->second));
    if (!is_new) continue;
    selected->push_back(whole[of_whole.at(spec.name)]);
    selected->back().backward_uses = spec.backward_uses;
  }
  return ids;
}

template <typename Model>
absl::StatusOr<std::unique_ptr<TrainedModel>> Made(const ModelDependencies& around) {
  auto model = std::make_unique<Model>(around);
  if (absl::Status status = model->Prepare(); !status.ok()) {
    // Another rank may have died since the engine was made, which ends here with the model: this
    // rank's state must be there when all try again.
    if (around.resumes) around.session.LeaveToSuccessor();
    return status;
  }
  return model;
}

}  // namespace

absl::Status TrainedModel::Prepare(const std::vector<ModelPart>& parts,
                                   collectives::Communicator* ranks) {
  const TrainOptions& options = around_.options;
  GEMINID_ASSIGN_OR_RETURN(place_, ModelPlace::Find(around_.session, Tokens::kTogether));
  if (options.parallel.sequence > 1) {
    GEMINID_ASSIGN_OR_RETURN(auto sharing, ConnectAlong(TrafficAxis::kSequence, {kSequenceAxis}));
    GEMINID_ASSIGN_OR_RETURN(
        sequences_,
        SequenceRanks::Connect(std::move(sharing), options.parallel,
                               {.threads = around_.threads,
                                .queue = place_->queue(),
                                .device = on_gpu() ? DeviceOf(around_.session) : nullptr,
                                .memory = between_}));
  }
  if (options.parallel.expert > 1) {
    GEMINID_ASSIGN_OR_RETURN(experts_, ConnectAlong(TrafficAxis::kExpert, {kExpertAxis}));
  }
  GEMINID_ASSIGN_OR_RETURN(whole_, TrainedParameters(options.model, options.frozen));
  for (zero::Parameter& parameter : whole_) parameter.trainable &= !options.eval_only;
  for (const ModelPart& part : parts) GEMINID_RETURN_IF_ERROR(AddPart(part));
  zero::Options zero = options.zero;
  zero.resume = around_.resumes;
  zero.timeout = kStandstill * options.timeout;
  if (ranks->WorldSize() < around_.world.WorldSize()) {
    zero.all_ranks = &around_.world;
    if (NeedsSums(zero.optimizer)) {
      zero.model = whole_;
      LeaveCopiesUncounted();
    }
  }
  zero.micro_batch_parts = static_cast<int>(parts.size());
  if (options.parallel.zero_within_host) {
    GEMINID_ASSIGN_OR_RETURN(
        host_ranks_, ConnectHostRanks(around_.world, *ranks, /*may_be_without=*/around_.resumes));
    zero.host_ranks = host_ranks_.get();
  }
  GEMINID_ASSIGN_OR_RETURN(engine_, zero::Engine::Create(&around_.session, ranks, mine_, zero));
  source_ = place_->Source(engine_.get(), &around_.session);
  for (Part& part : parts_) part.source = MakePartSource(source_.get(), part.ids);
  return PrepareAttention();
}

// Before there are weights on the device, which its test would evict. Other shapes that a model
// computes later, as for evaluation, are tested then.
absl::Status TrainedModel::PrepareAttention() {
  if (!on_gpu()) return absl::OkStatus();
  const TrainOptions& options = around_.options;
  const Parallel& parallel = options.parallel;
  // These attend in fp32, without a library.
  if (parallel.rings() || (parallel.has_grid() && parallel.sequence > 1)) return absl::OkStatus();
  const MicroBatchShape mine = ShapeOfShare(options, around_.world.WorldSize());
  const auto pieces = static_cast<uint64_t>(options.parallel.sequence);
  const uint64_t ranks = static_cast<uint64_t>(options.parallel.tensor.size) * pieces;
  const bool has_grid = options.parallel.has_grid();
  if (!has_grid && options.model.kv_heads % ranks != 0) return absl::OkStatus();
  const kernels::AttentionShape shape =
      has_grid ? TensorAttentionShape(options, mine)
               : AttentionShapeOf(options.model,
                                  {.sequences = mine.sequences,
                                   .sequence_length = mine.sequence_length * pieces},
                                  options.model.kv_heads / ranks);
  const Resources resources = {source_->workspace(), place_->math()};
  if (options.zero.data_type == zero::DataType::kFloat32) {
    return KernelsFor<float>(resources).PrepareAttention(resources, shape);
  }
  return KernelsFor<kernels::BFloat16>(resources).PrepareAttention(resources, shape);
}

absl::StatusOr<std::unique_ptr<collectives::Communicator>> TrainedModel::ConnectAlong(
    TrafficAxis axis, std::initializer_list<std::string_view> along) {
  GEMINID_ASSIGN_OR_RETURN(auto connected, around_.mesh.Connect(around_.world, along));
  traffic_.Add(axis, around_.mesh.Group(around_.world.Rank(), along),
               [ranks = connected.get()] { return ranks->Stats(); });
  return connected;
}

SequenceSlice TrainedModel::PiecesOfLayers() const {
  const RankShare share = ShareOf(around_.options, around_.mesh, around_.world.Rank());
  return {.positions = PositionsOf(share.batch), .attention = sequences_.attention()};
}

std::vector<uint64_t> TrainedModel::ItemBytes() const {
  if (around_.options.parallel.pipeline > 1) return {};
  return parts_.front().transformer->ItemBytes(
      ShapeOfShare(around_.options, around_.world.WorldSize()));
}

absl::Status TrainedModel::OffloadActivations(uint32_t places) {
  zero::ActivationShape shape = {.item_bytes = ItemBytes(), .places = places};
  if (on_gpu()) shape.stream = place_->queue()->handle();
  GEMINID_ASSIGN_OR_RETURN(zero::ActivationStack* const stack, engine_->MakeActivationStack(shape));
  stack_ = MakeSourceStack(stack, on_gpu() ? nullptr : &around_.session);
  return absl::OkStatus();
}

uint64_t TrainedModel::MostWorkingSetBytes(uint64_t chunk_elements) const {
  uint64_t most = 0;
  for (const Part& part : parts_) {
    most = std::max(most, WorkingSetBytes(part.transformer->parameters(),
                                          around_.options.zero.data_type, chunk_elements));
  }
  return most;
}

absl::Status TrainedModel::AddPart(const ModelPart& part) {
  const TrainOptions& options = around_.options;
  Part made;
  // The rows of experts are not as many in each step, as what is planned for must be.
  const bool in_workspace = !place_->on_gpu() && experts_ == nullptr;
  const SequenceExchange cut = sequences_.Cut(in_workspace ? nullptr : &between_);
  if (options.parallel.tensor.size == 1) {
    made.transformer =
        MakeTransformerPart(options.model, options.zero.data_type, part, TilingOf(options),
                            around_.threads, place_->math(), cut, experts_.get());
    made.ids = Select(whole_, made.transformer->parameters(), &mine_);
  } else {
    GEMINID_ASSIGN_OR_RETURN(tensor_,
                             TensorRanks::Connect(options, part, around_.mesh, around_.world));
    traffic_.Add(TrafficAxis::kTensor, around_.mesh.Group(around_.world.Rank(), {kTensorAxis}),
                 [ranks = &tensor_->ranks()] { return ranks->Stats(); });
    GEMINID_RETURN_IF_ERROR(tensor_->CheckPlaces(on_gpu()));
    if (options.parallel.has_grid()) {
      const MicroBatchShape shape = ShapeOfShare(options, around_.world.WorldSize());
      GEMINID_ASSIGN_OR_RETURN(
          made.transformer,
          tensor_->MakeModel(options.zero.data_type, shape, PiecesOfLayers(),
                             {.math = place_->math(),
                              .queue = place_->queue(),
                              .device = on_gpu() ? DeviceOf(around_.session) : nullptr,
                              .threads = on_gpu() ? nullptr : around_.threads,
                              .memory = between_}));
    } else {
      if (on_gpu()) GEMINID_RETURN_IF_ERROR(tensor_->ConnectGpus(DeviceOf(around_.session)));
      GEMINID_ASSIGN_OR_RETURN(
          made.transformer,
          tensor_->MakeShare(options.zero.data_type,
                             {place_->math(), on_gpu() ? nullptr : around_.threads, cut,
                              /*memory=*/between_}));
    }
    mine_ = tensor_->PartBlocks();
    for (size_t i = 0; i < mine_.size(); ++i) {
      made.ids.push_back(static_cast<zero::ParameterId>(i));
    }
  }
  parts_.push_back(std::move(made));
  return absl::OkStatus();
}

absl::StatusOr<double> TrainedModel::Squares(double norm, bool leads) const {
  if (tensor_ != nullptr) return tensor_->Squares(*engine_, norm, leads);
  return leads ? norm * norm : 0;
}

// What several ranks have, the first of them counts; of blocks that is said already.
void TrainedModel::LeaveCopiesUncounted() {
  const bool first_of_experts = experts_ == nullptr || experts_->Rank() == 0;
  for (const zero::ParameterId id : CopiedParameters()) {
    if (!first_of_experts) mine_[static_cast<size_t>(id)].counts = false;
  }
  const ModelParameters& last = parts_.back().transformer->parameters();
  const bool embeds = parts_.front().transformer->parameters().part.embeds;
  if (!around_.options.model.tied_output() || !last.part.outputs || embeds) return;
  // The first stage counts the table.
  const zero::ParameterId table = parts_.back().ids[static_cast<size_t>(last.token_table)];
  mine_[static_cast<size_t>(table)].counts = false;
}

std::vector<zero::ParameterId> TrainedModel::CopiedParameters() const {
  std::vector<bool> own(mine_.size());
  for (const Part& part : parts_) {
    for (const RoutedPlaces& routed : part.transformer->parameters().routed) {
      for (const ExpertPlaces& expert : routed.experts) {
        for (const zero::ParameterId id : expert.all) {
          own[static_cast<size_t>(part.ids[static_cast<size_t>(id)])] = true;
        }
      }
    }
  }
  std::vector<zero::ParameterId> copied;
  for (uint32_t i = 0; i < mine_.size(); ++i) {
    if (!own[i] && mine_[i].trainable) copied.push_back(zero::ParameterId{i});
  }
  return copied;
}

absl::StatusOr<double> TrainedModel::TrainMicroBatches(const GetBatch& get, float gradient_scale) {
  double sum = 0;
  for (uint64_t i = 0; i < micro_batches_; ++i) {
    GEMINID_ASSIGN_OR_RETURN(const MicroBatch batch, get(i));
    GEMINID_ASSIGN_OR_RETURN(const double loss, parts_.front().transformer->TrainMicroBatch(
                                                    *source_, batch, gradient_scale));
    sum += loss;
  }
  return sum;
}

absl::StatusOr<double> TrainedModel::Evaluate(const MicroBatch& batch) {
  return parts_.front().transformer->Evaluate(*source_, batch);
}

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::Create(
    const ModelDependencies& around) {
  const Parallel& parallel = around.options.parallel;
  if (parallel.pipeline > 1) return Made<PipelinedModel>(around);
  const bool cut = parallel.tensor.size > 1 || parallel.expert > 1;
  return cut ? Made<PartModel>(around) : Made<UncutModel>(around);
}

}  // namespace geminid::trainer
