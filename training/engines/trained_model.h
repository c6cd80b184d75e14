// The model that one rank trains, or its stage of a pipeline, with the engine that holds the
// parameters.
#ifndef GEMINID_TRAINING_ENGINES_TRAINED_MODEL_H_
#define GEMINID_TRAINING_ENGINES_TRAINED_MODEL_H_

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/mesh.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/engines/sequence_ranks.h"
#include "training/engines/tensor_ranks.h"
#include "training/logs/axis_traffic.h"
#include "training/nn/parameter_source.h"
#include "training/ranks/measured_speed.h"
#include "training/ranks/model_place.h"
#include "training/ranks/session_memory.h"
#include "training/settings/options.h"
#include "training/settings/rank_share.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

// What it works with; outlives it.
struct ModelSurroundings {
  const TrainOptions& options;
  const collectives::Mesh& mesh;
  collectives::Communicator& world;
  Session& session;
  kernels::ThreadPool* threads = nullptr;  // null: the calling thread
  bool resumes = false;                    // zero::Options::resume
};

// All ranks make the same calls.
class TrainedModel {
 public:
  static absl::StatusOr<std::unique_ptr<TrainedModel>> Create(const ModelSurroundings& around);
  virtual ~TrainedModel() = default;

  bool on_gpu() const { return place_->on_gpu(); }
  const ModelPlace& place() const { return *place_; }
  // TensorRanks::adds_up_by, or nothing.
  std::string LayersAddUpBy() const { return tensor_ == nullptr ? "" : tensor_->adds_up_by(); }
  // `threads`: on the host.
  ComputePlace ComputesWith(size_t threads) const {
    return {*place_, source_->workspace(), threads};
  }
  // WorkingSetBytes of this rank's part that needs the most.
  uint64_t MostWorkingSetBytes(uint64_t chunk_elements) const;
  zero::Engine& engine() const { return *engine_; }
  // Of what a micro-batch of the run can offload; empty where the model can offload nothing.
  std::vector<uint64_t> ItemBytes() const;
  // Micro-batches that are given stack() leave these items in so many places and in host memory.
  // Before the first one, at most once.
  absl::Status OffloadActivations(uint32_t places);
  zero::ActivationStack* stack() const { return stack_.get(); }  // null: there is none
  // Of the whole model, as are its ids.
  virtual zero::ModelState& state() { return *engine_; }
  const std::vector<zero::Parameter>& parameters() const { return whole_; }
  const TrafficMeter& traffic() const { return traffic_; }

  // Of each step from now on; zero.accumulate until then. With the whole model on each rank.
  void SetMicroBatches(uint64_t count) { micro_batches_ = count; }

  // This rank's part of a step's micro-batch, valid until the next call.
  using GetBatch = std::function<absl::StatusOr<MicroBatch>(uint64_t micro_batch)>;
  // Forward and backward of all of a step's micro-batches. The sum of the cross-entropy over this
  // rank's tokens; 0 where another rank has the loss.
  virtual absl::StatusOr<double> TrainMicroBatches(const GetBatch& get, float gradient_scale);
  // Engine::Step for the whole model.
  virtual absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) = 0;
  // As TrainMicroBatches, of one micro-batch without its gradients, between steps.
  virtual absl::StatusOr<double> Evaluate(const MicroBatch& batch);

 protected:
  explicit TrainedModel(const ModelSurroundings& around)
      : around_(around), micro_batches_(static_cast<uint64_t>(around.options.zero.accumulate)) {}
  // Those that differ from this rank along the mesh's axes; metered, and so as long-lived as this.
  absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectAlong(
      TrafficAxis axis, std::initializer_list<std::string_view> along);
  // `ranks` train `parts` together, and outlive this. Of a model whose layers are cut there is one.
  absl::Status Prepare(const std::vector<ModelPart>& parts, collectives::Communicator* ranks);
  // This rank's share of the square of the whole model's gradient norm, if the engine's is `norm`,
  // and `leads` is true on one of its ranks. Between GradientNorm and Step.
  absl::StatusOr<double> Squares(double norm, bool leads) const;

  // The engine's parameters that are trained, and of no expert.
  std::vector<zero::ParameterId> CopiedParameters() const;

  // Of the model, as the rank trains it.
  struct Part {
    std::unique_ptr<Transformer> transformer;
    std::vector<zero::ParameterId> ids;       // the engine's, by the part's own
    std::unique_ptr<ParameterSource> source;  // of the engine's those parameters
  };

  const ModelSurroundings around_;
  SessionMemory between_{around_.session};  // of the host, for what travels between ranks
  TrafficMeter traffic_{around_.world};
  std::vector<zero::Parameter> whole_;
  std::vector<zero::Parameter> mine_;  // the engine's: of all parts
  SequenceRanks sequences_;
  std::unique_ptr<TensorRanks> tensor_;                 // that share layers; null: they are whole
  std::unique_ptr<collectives::Communicator> experts_;  // that share each layer's; null: none do
  // That share this rank's weights and its host; null: weights are not sharded within hosts.
  std::unique_ptr<collectives::Communicator> host_ranks_;
  // Destroyed in reverse order: the engine uses the place's stream.
  std::unique_ptr<ModelPlace> place_;
  std::unique_ptr<zero::Engine> engine_;
  std::unique_ptr<ParameterSource> source_;
  std::unique_ptr<zero::ActivationStack> stack_;  // at the addresses that the model computes with
  std::vector<Part> parts_;                       // in the order in which tokens pass them

 private:
  uint64_t micro_batches_;  // of a step

  // And its parameters as the engine is told of them.
  absl::Status AddPart(const ModelPart& part);
  absl::Status PrepareAttention();
  void LeaveCopiesUncounted();
  // Of the sequences, for layers that are cut.
  TensorPieces PiecesOfLayers() const;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_TRAINED_MODEL_H_
