// The model that one rank trains, or its stage of a pipeline, with the engine that has the
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

// The objects that a model uses; they outlive it.
struct ModelDependencies {
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
  static absl::StatusOr<std::unique_ptr<TrainedModel>> Create(const ModelDependencies& around);
  virtual ~TrainedModel() = default;

  bool on_gpu() const { return place_->on_gpu(); }
  const ModelPlace& place() const { return *place_; }
  // SequenceRanks::keys_travel_by.
  const std::string& KeysTravelBy() const { return sequences_.keys_travel_by(); }
  // TensorRanks::adds_up_by, or nothing.
  std::string LayersAddUpBy() const { return tensor_ == nullptr ? "" : tensor_->adds_up_by(); }
  // `threads`: the number of threads if the host computes.
  ComputePlace ComputesWith(size_t threads) const {
    return {*place_, source_->workspace(), threads};
  }
  // The largest WorkingSetBytes of this rank's parts.
  uint64_t MostWorkingSetBytes(uint64_t chunk_elements) const;
  zero::Engine& engine() const { return *engine_; }
  // The bytes of each item that a micro-batch can offload; empty: the model can offload nothing.
  std::vector<uint64_t> ItemBytes() const;
  // Makes micro-batches offload these items: to `places` device buffers and host memory. Call it at
  // most once, before the first micro-batch.
  absl::Status OffloadActivations(uint32_t places);
  zero::ActivationStack* stack() const { return stack_.get(); }  // null: there is none
  // The state of the whole model, with the whole model's ids.
  virtual zero::ModelState& state() { return *engine_; }
  const std::vector<zero::Parameter>& parameters() const { return whole_; }
  const TrafficMeter& traffic() const { return traffic_; }

  // The micro-batches of each step from now on; zero.accumulate before. Only if each rank has the
  // whole model.
  void SetMicroBatches(uint64_t count) { micro_batches_ = count; }

  // Returns this rank's part of a micro-batch, valid until the next call.
  using GetBatch = std::function<absl::StatusOr<MicroBatch>(uint64_t micro_batch)>;
  // Runs forward and backward of all micro-batches of a step. Returns the sum of the cross-entropy
  // over this rank's tokens; 0 if another rank has the loss.
  virtual absl::StatusOr<double> TrainMicroBatches(const GetBatch& get, float gradient_scale);
  // Engine::Step for the whole model.
  virtual absl::StatusOr<zero::StepResult> Step(const zero::Engine::StepInput& input) = 0;
  // The loss of one micro-batch, as TrainMicroBatches returns it, without gradients. Between steps.
  virtual absl::StatusOr<double> Evaluate(const MicroBatch& batch);

 protected:
  explicit TrainedModel(const ModelDependencies& around)
      : around_(around), micro_batches_(static_cast<uint64_t>(around.options.zero.accumulate)) {}
  // Connects the ranks that differ from this one only along the given axes of the mesh. Its traffic
  // is metered, so the communicator lives as long as this object.
  absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectAlong(
      TrafficAxis axis, std::initializer_list<std::string_view> along);
  // `ranks` train `parts` together, and outlive this object. With shards of layers there is one
  // part.
  absl::Status Prepare(const std::vector<ModelPart>& parts, collectives::Communicator* ranks);
  // This rank's summand of the squared norm of the whole model's gradient. `norm` is the engine's
  // norm; `leads` is true on one of the engine's ranks. Call it between GradientNorm and Step.
  absl::StatusOr<double> Squares(double norm, bool leads) const;

  // The engine's trained parameters, without those of experts.
  std::vector<zero::ParameterId> CopiedParameters() const;

  // A part of the model that this rank trains.
  struct Part {
    std::unique_ptr<Transformer> transformer;
    std::vector<zero::ParameterId> ids;       // the engine's ids, by the part's
    std::unique_ptr<ParameterSource> source;  // the engine's parameters of this part
  };

  const ModelDependencies around_;
  SessionMemory between_{around_.session};  // host memory for transfers between ranks
  TrafficMeter traffic_{around_.world};
  std::vector<zero::Parameter> whole_;
  std::vector<zero::Parameter> mine_;  // the engine's parameters, of all parts
  SequenceRanks sequences_;
  std::unique_ptr<TensorRanks> tensor_;                 // null: layers are whole
  std::unique_ptr<collectives::Communicator> experts_;  // ranks that share experts; null: none do
  // The ranks that share this rank's weights and host; null: weights are not sharded within hosts.
  std::unique_ptr<collectives::Communicator> host_ranks_;
  // Destroyed in reverse order: the engine uses the place's stream.
  std::unique_ptr<ModelPlace> place_;
  std::unique_ptr<zero::Engine> engine_;
  std::unique_ptr<ParameterSource> source_;
  std::unique_ptr<zero::ActivationStack> stack_;  // with the addresses that the model computes with
  std::vector<Part> parts_;                       // in the order of the forward pass

 private:
  uint64_t micro_batches_;  // of a step

  // Also adds its parameters for the engine.
  absl::Status AddPart(const ModelPart& part);
  absl::Status PrepareAttention();
  void LeaveCopiesUncounted();
  // The slices of the sequences, for the layers of a grid.
  SequenceSlice PiecesOfLayers() const;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_TRAINED_MODEL_H_
