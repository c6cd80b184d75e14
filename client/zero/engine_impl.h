// The engine: follows the trainer operator by operator, first recording, then by the plan.
#ifndef GEMINID_CLIENT_ZERO_ENGINE_IMPL_H_
#define GEMINID_CLIENT_ZERO_ENGINE_IMPL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/arena_meter.h"
#include "client/zero/granule_optimizer.h"
#include "client/zero/layout.h"
#include "client/zero/mover.h"
#include "client/zero/recorder.h"
#include "client/zero/replan.h"
#include "client/zero/shard_parts.h"
#include "client/zero/snapshotter.h"
#include "client/zero/state_placement.h"
#include "client/zero/state_store.h"
#include "client/zero/tensor_states.h"
#include "client/zero/updater.h"
#include "client/zero/workspace.h"
#include "geminid/communicator.h"
#include "geminid/loss_scaler.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

class EngineImpl final : public Engine {
 public:
  EngineImpl(Session* session, collectives::Communicator* communicator,
             std::vector<Parameter> parameters, Options options);
  ~EngineImpl() override;

  // Everything of construction that can fail.
  absl::Status Start();

  absl::Status Initialize(const Fill& fill) override;
  absl::Status BeginMicroBatch() override;
  absl::StatusOr<Operation> Use(Pass pass, std::span<const ParameterId> parameters) override;
  Workspace& workspace() override { return *workspace_; }
  absl::Status ReportWorkspace(uint64_t bytes) override { return workspace_->Report(bytes); }
  absl::StatusOr<StepResult> Step(const StepInput& input) override;
  double loss_scale() const override { return loss_scaler_.scale(); }
  absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) override;
  std::vector<ShardRange> ShardOf(ParameterId id) const override;
  bool HasState(ParameterId id, StateKind kind) const override;
  absl::Status WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                          std::span<const float> values) override;
  absl::Status Restore(const Progress& progress) override;
  absl::StatusOr<Progress> GetProgress() override;
  absl::Status StartSnapshot(std::shared_ptr<SnapshotSink> sink) override;
  absl::Status WaitSnapshot() override;
  absl::StatusOr<Statistics> GetStatistics() override;

  // For Operation.
  const std::byte* AddressOf(ParameterId id) const;
  bool GradientAccumulates(ParameterId id) const;
  absl::Status GradientWritten(Pass pass, ParameterId id);
  absl::Status FinishOperation(Pass pass, std::span<const ParameterId> parameters,
                               std::span<const uint32_t> chunks);

 private:
  // What the engine knows of a chunk beyond what moves it.
  struct ChunkUse {
    explicit ChunkUse(size_t tensors) : states(tensors), gradients_written(tensors) {}
    TensorStates states;
    std::vector<int> gradients_written;  // per tensor, in this backward
    std::optional<Lease> lease;          // while any operation holds the chunk
    int holders = 0;
    bool announced = false;       // the daemon knows that it is HOLD
    bool holds_gradient = false;  // so it may not be dropped
    bool reduced = false;         // in this micro-batch
  };

  // Does what the trainer's thread waits for, and counts the wait.
  template <typename Work>
  auto Waited(StallCause cause, const Work& work) {
    const absl::Time began = clock_();
    auto result = work();
    session_->AddStall(cause, clock_() - began);
    return result;
  }

  // engine_impl.cc: creation, and parameters as values
  absl::Status CheckArguments() const;
  absl::Status MakeLayoutAndGatheredChunks();
  absl::Status MakeCommunicators();
  absl::Status Remember(const absl::Status& status);
  void AbortRanks(const std::string& reason);
  absl::Status Health();
  absl::Status ReadHostBytes();
  void StoreParameter(uint32_t tensor, std::span<const float> values);
  void LoadShard(uint32_t tensor, std::span<int32_t> bits) const;

  // engine_shards.cc: state in and out
  std::vector<ShardPart> PartsOf(ParameterId id) const;
  absl::Status CheckNotStarted(const char* call);
  absl::Status CheckBetweenSteps(const char* call);

  // engine_moments.cc: operators, and what happens between them
  absl::Status EnterMoment(Pass pass, const std::vector<uint32_t>& chunks);
  absl::Status LeaveMoment();
  absl::Status FollowPlan(const std::vector<uint32_t>& chunks);
  absl::Status GatherOnDemand(const std::vector<uint32_t>& chunks);
  absl::Status HoldChunks(const std::vector<uint32_t>& chunks);
  absl::Status ReleaseChunk(Pass pass, uint32_t chunk);
  bool MayDrop(uint32_t chunk) const;
  void DropIdleChunks();
  void DropPlanned();
  absl::Status SetReservation(uint64_t extent_bytes);
  absl::Status GrowWorkspace(uint64_t extent_bytes);
  absl::Status MoveTensor(uint32_t tensor, shm::ChunkState to);
  std::vector<uint32_t> ChunksOf(std::span<const ParameterId> parameters) const;
  void ReduceChunk(uint32_t chunk);

  // engine_plan.cc: from the sample to the plan
  absl::Status MakePlanFromSample();
  StatePlacementProblem MakeStatePlacementProblem(const Trace& trace) const;
  uint64_t StateBudgetBytes(const StatePlacementProblem& problem) const;
  absl::StatusOr<size_t> CountStateOnDevice(const StatePlacementProblem& problem);
  absl::Status PlaceState(Trace* trace);
  absl::StatusOr<Plan> RequestPlan(const Trace& trace);
  absl::Status MoveStateToDevice(std::span<const uint32_t> chunks);
  std::vector<uint32_t> FirstUseOrder() const;
  void SetUpdateOrder();
  Trace MakeTrace() const;
  absl::Status AgreeOnTrace(Trace* trace);
  absl::Status CheckSameOnAllRanks(uint64_t value, const char* what);
  absl::StatusOr<Plan> RequestPlanWithMargin(Trace* trace);
  absl::Status PutInForce(const Trace& trace, Plan plan);

  // engine_replan.cc: whether the plan still fits, and what follows if not
  void BeginMeasuring();
  void EndMeasuring();
  uint64_t PeakExcessBytes() const;
  absl::StatusOr<ReplanCause> JudgePlan();
  absl::Status PlanAgain(ReplanCause cause);
  absl::Status PlanFromRecording();
  absl::Status TellController();

  // engine_step.cc: the end of micro-batches and steps
  absl::Status EndMicroBatch();
  absl::Status ReduceUnusedParameters();
  absl::StatusOr<double> GlobalGradientNorm();
  absl::Status PrepareUpdate(const StepInput& input, const StepResult& result);
  void Commit(const StepInput& input, const StepResult& result);

  uint32_t ChunkOf(ParameterId id) const {
    return layout_.tensors[static_cast<uint32_t>(id)].chunk;
  }
  // A tensor's place among the tensors of its chunk.
  size_t SlotOf(ParameterId id) const { return slot_in_chunk_[static_cast<uint32_t>(id)]; }
  size_t element_bytes() const { return SizeOf(options_.data_type); }

  Session* const session_;
  collectives::Communicator* const communicator_;
  const std::vector<Parameter> parameters_;
  const Options options_;
  const std::function<absl::Time()> clock_;
  Layout layout_;
  std::vector<uint64_t> elements_;  // by tensor
  ArenaMeter meter_;
  std::vector<ChunkId> gathered_;
  std::unique_ptr<collectives::Communicator> mover_communicator_;
  std::unique_ptr<collectives::Communicator> control_communicator_;
  std::unique_ptr<GranuleOptimizer> optimizer_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<Mover> mover_;  // destroyed after updater_, which notifies it
  std::unique_ptr<Snapshotter> snapshotter_;  // destroyed after updater_, which calls it
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<ArenaWorkspace> workspace_;
  LossScaler loss_scaler_;
  std::vector<ChunkUse> chunks_;
  std::vector<size_t> slot_in_chunk_;

  absl::Status status_;
  Recorder recorder_;
  bool sampling_ = true;  // this micro-batch is recorded
  std::optional<Plan> plan_;
  std::vector<TraceMoment> planned_moments_;           // what it was made from
  std::vector<std::vector<uint32_t>> planned_chunks_;  // by moment
  std::vector<bool> resident_at_start_;                // by chunk
  bool state_placed_ = false;                          // once, before the first plan
  uint64_t plan_base_bytes_ = 0;                       // plan offsets begin here in the arena
  std::vector<uint32_t> update_order_;
  uint64_t plans_made_ = 0;

  // Whether the plan still fits. In this micro-batch:
  bool order_changed_ = false;   // the operators are others than in the sample
  bool workspace_grew_ = false;  // beyond what was planned
  absl::Time micro_batch_began_;
  absl::Duration update_stall_;  // of the whole run, when it began
  // In this step: the micro-batches that followed the plan to their end.
  double planned_seconds_ = 0;
  int planned_micro_batches_ = 0;
  // In this run:
  std::optional<ReplanController> controller_;   // from the first plan on
  std::vector<uint64_t> first_workspace_bytes_;  // by moment: margins are above these
  ReplanCause resampled_for_ = ReplanCause::kNone;
  std::array<uint64_t, kReplanCauses> replans_ = {};

  bool in_micro_batch_ = false;
  bool following_plan_ = false;  // this micro-batch, so far
  bool in_moment_ = false;
  size_t moment_ = 0;  // of this micro-batch: the next one to enter
  absl::Time moment_began_;
  absl::Time moment_ended_;
  uint64_t reserved_bytes_ = 0;
  uint64_t host_bytes_ = 0;  // as the daemon's ledger had it after the last change
  int micro_batch_ = 0;      // within the step: complete ones
  uint64_t micro_batches_run_ = 0;
  uint64_t bound_bytes_ = 0;  // lower bound over the planned micro-batches so far
  uint64_t unplanned_micro_batches_ = 0;
  uint64_t step_ = 0;
  uint64_t epoch_ = 0;    // of the last commit
  uint64_t updates_ = 0;  // steps that changed the weights
};

// What an Operation holds.
struct Operation::State {
  EngineImpl* engine = nullptr;
  Pass pass = Pass::kForward;
  std::vector<ParameterId> parameters;
  std::vector<uint32_t> chunks;
  bool finished = false;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_ENGINE_IMPL_H_
