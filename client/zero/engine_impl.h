// The engine: tells the Director what the trainer does, and has its moves carried out.
#ifndef GEMINID_CLIENT_ZERO_ENGINE_IMPL_H_
#define GEMINID_CLIENT_ZERO_ENGINE_IMPL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/src/session_internal.h"
#include "client/zero/arena_meter.h"
#include "client/zero/compute.h"
#include "client/zero/core/director.h"
#include "client/zero/core/gradient_book.h"
#include "client/zero/core/placer.h"
#include "client/zero/core/planned_run.h"
#include "client/zero/core/replan.h"
#include "client/zero/core/staying.h"
#include "client/zero/granule_optimizer.h"
#include "client/zero/layout.h"
#include "client/zero/mover.h"
#include "client/zero/operator_meter.h"
#include "client/zero/plan_tally.h"
#include "client/zero/published.h"
#include "client/zero/rank_links.h"
#include "client/zero/shard_parts.h"
#include "client/zero/shard_values.h"
#include "client/zero/snapshotter.h"
#include "client/zero/state_placement.h"
#include "client/zero/state_store.h"
#include "client/zero/updater.h"
#include "client/zero/workspace.h"
#include "geminid/communicator.h"
#include "geminid/loss_scaler.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "proto/shm/chunk_state.h"

namespace geminid::zero {

class EngineImpl final : public Engine {
 public:
  EngineImpl(Session* session, collectives::Communicator* communicator,
             std::vector<Parameter> parameters, Options options);
  ~EngineImpl() override;

  // Everything of construction that can fail.
  absl::Status Start();
  // A predecessor's state is there, which no rank has said cannot be gone on from.
  bool may_resume() const { return may_resume_; }

  absl::Status Initialize(const Fill& fill) override;
  absl::Status InitializeShards(const FillRange& fill) override;
  absl::Status BeginStep(const StepInput& input) override;
  absl::Status BeginMicroBatch() override;
  absl::Status CancelMicroBatch() override;
  absl::StatusOr<Operation> Use(Pass pass, std::span<const ParameterId> parameters) override;
  absl::StatusOr<Operation> Use(Pass pass, std::span<const ParameterId> parameters,
                                StreamHandle stream) override;
  absl::Status AddGradient(ParameterId id, std::span<const std::byte> gradient,
                           DataType type) override;
  absl::Status AddGradient(ParameterId id, std::span<const std::byte> gradient, DataType type,
                           StreamHandle stream) override;
  absl::Status Synchronize() override;
  const std::byte* StableAddress(ParameterId id) const override;
  Workspace& workspace() override { return *workspace_; }
  absl::Status ReportWorkspace(uint64_t bytes) override { return workspace_->Report(bytes); }
  absl::StatusOr<double> GradientNorm() override;
  absl::StatusOr<StepResult> Step(const StepInput& input) override;
  double loss_scale() const override {
    const Lock lock(mutex_);
    return loss_scaler_.scale();
  }
  absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) override;
  std::vector<ShardRange> ShardOf(ParameterId id) const override;
  bool HasState(ParameterId id, StateKind kind) const override;
  absl::Status ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                         std::span<float> values) override;
  absl::Status WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                          std::span<const float> values) override;
  absl::Status ReadGradient(ParameterId id, uint64_t offset, std::span<float> values) override;
  absl::Status WriteGradient(ParameterId id, uint64_t offset,
                             std::span<const float> values) override;
  absl::Status Restore(const Progress& progress) override;
  absl::StatusOr<Progress> GetProgress() override;
  absl::Status StartSnapshot(std::shared_ptr<SnapshotSink> sink) override;
  absl::Status WaitSnapshot() override;
  absl::StatusOr<Statistics> GetStatistics() override;
  absl::Status health() const override;
  std::optional<Resumed> resumed() const override { return resumed_; }

  // For Operation, which must be open.
  const std::byte* WeightOf(ParameterId id) const;
  std::byte* GradientOf(ParameterId id) const;
  bool GradientAccumulates(ParameterId id) const;
  absl::Status GradientWritten(ParameterId id);
  // `stream`: what uses them is queued there; null: is complete.
  absl::Status FinishOperation(std::span<const uint32_t> chunks, Stream* stream);
  absl::StatusOr<Stream*> StreamOf(StreamHandle handle) const {
    return DeviceOf(*session_)->StreamOf(handle);
  }

 private:
  // A block of workspace outside its reservation: a chunk of the session's own.
  struct HoleBlock {
    ChunkId chunk = kNoChunk;
    std::byte* data = nullptr;
    uint64_t extent_bytes = 0;
    std::optional<Lease> lease;
  };
  // The step that is being made.
  struct OpenStep {
    int micro_batches = 0;           // complete ones
    std::optional<double> norm{};    // once asked for
    bool gradients_written = false;  // by the trainer, since they were measured
  };
  // What the commit record says.
  struct Committed {
    uint64_t step = 0;
    uint64_t epoch = 0;
    uint64_t updates = 0;  // steps that changed the weights
  };
  using Lock = std::lock_guard<CallMutex>;

  // Does what the trainer's thread waits for, and counts the wait.
  template <typename Work>
  auto Waited(StallCause cause, const Work& work) {
    const absl::Time began = clock_();
    auto result = work();
    session_->AddStall(cause, clock_() - began);
    return result;
  }

  // engine_impl.cc: creation
  absl::Status CheckArguments() const;
  absl::Status CheckNotFinite() const;
  absl::Status CheckParameter(const Parameter& parameter) const;
  absl::Status MakeLayout();
  absl::Status AllocateGathered();
  absl::Status MakeViews();
  absl::Status MakeStateStore();
  absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> MakeUpdatePool() const;
  absl::Status MakeThreads();
  absl::Status MakeMover();
  absl::Status CheckUpdatesInBackward() const;
  // The parameters of a chunk of the layout, in words; and what a place in the arena is for.
  std::string NamesIn(uint32_t chunk) const;
  std::string NameOfGathered(uint32_t chunk) const;
  absl::Status Remember(const absl::Status& status);
  // Of a call of the trainer's: should it stop for this, the other ranks are told why.
  template <typename Result>
  Result Answer(Result result);
  std::string WhyStopped() const;
  absl::Status Health();
  // And whether there is a device to compute on.
  absl::Status HealthOnDevice();
  absl::Status ReadHostBytes();
  void GiveMemoryBack();

  // engine_statistics.cc: what is known without waiting
  void Publish();
  Statistics StatisticsOf(const Published::Basis& basis) const;

  // engine_resume.cc: after a predecessor of this process
  std::optional<uint64_t> StepLeft() const;
  absl::Status CheckAllRanks() const;
  absl::StatusOr<bool> ResumeState();
  absl::Status PassStep(int ahead, bool is_behind);
  absl::Status PassNote(int ahead, uint64_t epoch, StepNote* note);
  absl::Status ReadTensorStateOf(uint64_t epoch, std::span<std::byte> bytes);
  absl::StatusOr<uint64_t> FinishUpdate();

  // engine_values.cc: parameters as values
  absl::Status CheckNew(const char* call);
  absl::Status AgreeOnFill(const char* call, const absl::Status& filled);
  absl::Status LoadShard(uint32_t tensor, std::span<int32_t> bits) const;

  // engine_shards.cc: state in and out
  std::vector<ShardPart> PartsOf(ParameterId id) const;
  absl::Status CheckNotStarted(const char* call);
  absl::Status CheckBetweenSteps(const char* call);
  absl::Status CheckState(ParameterId id, StateKind kind) const;
  absl::Status CheckGradientCall(const char* call, ParameterId id);
  absl::StatusOr<std::vector<ShardPart>> PiecesOf(ParameterId id, uint64_t offset,
                                                  uint64_t elements) const;
  absl::Status ForgetDeviceCopies();

  // engine_moments.cc: operators, and what happens between them
  absl::Status CheckId(ParameterId id) const;
  absl::Status CheckUse(Pass pass, std::span<const ParameterId> parameters) const;
  absl::Status CheckNotUpdated(std::span<const ParameterId> parameters) const;
  // In all of these, `stream` null: the caller's thread waits.
  absl::StatusOr<Operation> Begin(Pass pass, std::span<const ParameterId> parameters,
                                  Stream* stream);
  absl::Status BeginOperator(bool evaluate, const std::vector<uint32_t>& chunks,
                             uint64_t workspace_bytes, Stream* stream);
  // That an operator may hold all of these beside what is held and so much workspace: if not, it is
  // refused before anything has changed.
  absl::Status CheckFits(const std::vector<uint32_t>& chunks, uint64_t workspace_bytes) const;
  // `position`: of reductions.
  absl::Status Carry(const Moves& moves, MicroBatchPosition position = {});
  absl::Status PlaceGradient(const std::vector<uint32_t>& storage, bool planned,
                             uint64_t workspace_bytes, Stream* stream);
  absl::Status Bring(const std::vector<uint32_t>& chunks, const Placer::Held& held);
  absl::Status WaitResident(const std::vector<uint32_t>& chunks);
  absl::Status HoldChunks(const std::vector<uint32_t>& chunks, Stream* stream);
  void BeginMeasuringMoment(Stream* stream);
  absl::Status SynchronizeStreams();
  void Measure();
  std::vector<uint32_t> ChunksOf(Pass pass, std::span<const ParameterId> parameters) const;
  absl::Status ReduceIfComplete(uint32_t chunk);
  absl::Status Reduce(uint32_t chunk);
  absl::Status OpenGradient(uint32_t chunk, bool planned, Stream* stream);
  absl::Status CheckAddGradient(ParameterId id, std::span<const std::byte> gradient,
                                DataType type) const;
  absl::Status AddGradientOn(ParameterId id, std::span<const std::byte> gradient, DataType type,
                             Stream* stream);
  absl::Status AddTo(uint32_t tensor, std::span<const std::byte> gradient, DataType type,
                     Stream* stream);
  // `needed`: of chunks that may not leave.
  absl::Status DoesNotFit(const Placer::Held& needed, uint64_t activation_bytes) const;

  // engine_workspace.cc
  // While chunks are placed. Other threads ask for workspace meanwhile: they get none beyond what
  // was in use at the beginning before the end.
  class Placing {
   public:
    explicit Placing(EngineImpl* engine);
    ~Placing();
    Placing(const Placing&) = delete;
    Placing& operator=(const Placing&) = delete;

    uint64_t workspace_bytes() const { return workspace_bytes_; }

   private:
    EngineImpl* const engine_;
    const uint64_t workspace_bytes_;
  };
  absl::Status GrowWorkspace(uint64_t extent_bytes);
  absl::StatusOr<std::byte*> AllocateInHole(uint64_t bytes);
  void FreeInHole(std::byte* data);

  // engine_plan.cc: from the sample to the plan
  absl::Status MakePlanFromRecording();
  StatePlacementProblem MakeStatePlacementProblem(const Trace& trace) const;
  uint64_t StateBudgetBytes(const StatePlacementProblem& problem) const;
  absl::StatusOr<size_t> CountStateOnDevice(const StatePlacementProblem& problem);
  absl::Status PlaceState(Trace* trace);
  absl::StatusOr<Plan> RequestPlan(const Trace& trace, bool weights_change = true);
  absl::Status MoveStateToDevice(std::span<const uint32_t> chunks);
  std::vector<uint32_t> FirstUseOrder() const;
  void SetUpdateOrder();
  Trace MakeTrace(const std::vector<Moment>& moments) const;
  PlannedRun RunOf(Plan plan, const Trace& trace) const {
    return PlannedRun(std::move(plan), trace.moments, store_->device_bytes());
  }
  absl::StatusOr<Plan> RequestPlanWithMargin(Trace* trace);
  absl::Status PutInForce(const Trace& trace, Plan plan);
  absl::Status PlanEvaluation(bool end);

  // engine_stages.cc
  absl::Status CheckStage() const;
  absl::Status CheckMicroBatches(const char* call) const;

  // engine_replan.cc: whether the plan still fits, and what follows if not
  absl::Duration UpdateStall() const;
  uint64_t PeakExcessBytes() const;
  struct Judgement {
    ReplanCause cause = ReplanCause::kNone;
    bool asked = false;  // by the controller, which waits for it
  };
  absl::StatusOr<Judgement> JudgePlan(bool step_ends);
  absl::Status PlanIfNeeded(bool step_ends);
  absl::Status TellController();

  // engine_yield.cc: other jobs' turn
  absl::StatusOr<bool> AllRanks(bool mine);
  absl::Status YieldIfAsked();
  absl::Status AwaitArena();
  absl::Status LeaveArena();

  // engine_step.cc: the end of micro-batches and steps
  absl::Status CheckNothingOpen(const char* call) const;
  absl::Status EndMicroBatch(bool step_ends);
  absl::Status ReduceIncomplete(bool step_ends);
  absl::StatusOr<double> NormOfStep(const AgreedFields& step);
  absl::StatusOr<double> NormAgain(const AgreedFields& step);
  absl::StatusOr<double> GlobalGradientNorm(const AgreedFields& step);
  absl::Status NotOfStep(const absl::Status& status);
  absl::Status CheckStep(const char* call) const;
  absl::Status CheckRates(const StepInput& input) const;
  absl::Status NameNotFinite(double norm);
  double GradientFactor() const;
  absl::Status LeaveOutUnwritten(std::vector<TensorRates>* rates);
  absl::Status CheckBegun(const StepInput& input) const;
  absl::Status PrepareUpdate(const StepInput& input, const StepResult& result, uint64_t update);
  void Commit(const StepInput& input, const StepResult& result);

  uint32_t ChunkOf(ParameterId id) const {
    return layout_.tensors[static_cast<uint32_t>(id)].chunk;
  }
  uint64_t ElementsOfTensor(uint32_t tensor) const { return elements_[tensor]; }
  std::byte* Address(uint32_t chunk, uint32_t tensor) const;
  Placer::Held Held() const {
    return [this](uint32_t chunk) { return director_->holders(chunk) > 0; };
  }
  bool updates_in_backward() const { return options_.update == UpdateTime::kInBackward; }
  // Weights are gathered once between updates.
  bool weights_stay() const { return options_.stage != Stage::kWeights; }
  StayingWeights staying_weights() const {
    return {.chunks = layout_.chunks.size(), .unused_too = options_.micro_batch_parts > 1};
  }
  // Gradients are added up over micro-batches, whole, and then reduced.
  bool sums_gradients() const { return options_.stage == Stage::kState && options_.accumulate > 1; }
  // Where a step has a fixed number of them: each part has `accumulate`.
  int MicroBatchesOfStep() const { return options_.accumulate * options_.micro_batch_parts; }
  const Plan* plan() const {
    return director_->training_plan() == nullptr ? nullptr : &director_->training_plan()->plan();
  }

  Session* const session_;
  collectives::Communicator* const communicator_;
  const std::vector<Parameter> parameters_;
  const Options options_;
  const std::function<absl::Time()> clock_;
  // What Operations know this by; null in it once this has ended.
  const std::shared_ptr<EngineImpl*> self_;
  mutable CallMutex mutex_;
  Published published_;

  Layout layout_;
  std::vector<uint64_t> elements_;  // by tensor
  ArenaMeter meter_;
  std::vector<ChunkId> gathered_;  // of chunks, then of separate gradients
  std::vector<uint64_t> views_;    // likewise: where they are among the device's; none: no views
  std::unique_ptr<RankLinks> links_;
  std::unique_ptr<GranuleOptimizer> optimizer_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<ShardValues> values_;
  std::unique_ptr<Mover> mover_;              // destroyed after updater_, which notifies it
  std::unique_ptr<Snapshotter> snapshotter_;  // destroyed after updater_, which calls it
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<ArenaWorkspace> workspace_;
  std::unique_ptr<Compute> compute_;  // of the trainer's thread
  LossScaler loss_scaler_;

  bool arena_claimed_ = false;
  bool may_resume_ = false;
  absl::Status status_;
  absl::Status wait_ended_;  // for the arena; not OK: there is none any more
  absl::Status refused_;     // of the trainer's last call, if it was
  std::unique_ptr<Director> director_;
  std::unique_ptr<Placer> placer_;
  std::unique_ptr<GradientBook> book_;
  std::map<uint32_t, HoleBlock> hole_blocks_;  // by their numbers for the Placer

  std::vector<TraceMoment> planned_moments_;  // what the plan was made from
  Trace planned_trace_;
  bool state_placed_ = false;  // once, before the first plan
  std::vector<uint32_t> update_order_;
  PlanTally tally_;

  // Whether the plan still fits. In this micro-batch:
  bool workspace_grew_ = false;  // beyond what was planned
  bool evaluated_ = false;
  // In this run:
  std::optional<ReplanController> controller_;   // from the first plan on
  std::vector<uint64_t> first_workspace_bytes_;  // by moment: margins are above these

  uint64_t operation_ = 0;  // of this micro-batch: how many have begun
  OperatorMeter times_;
  uint64_t host_bytes_ = 0;  // as the daemon's ledger had it after the last change
  OpenStep open_;
  std::optional<StepInput> begun_;  // what updates are made with in the backward pass
  bool yield_asked_ = false;        // of all ranks, in the step that ends
  uint64_t micro_batches_run_ = 0;
  std::optional<Resumed> resumed_;
  Committed committed_;
};

template <typename Result>
Result EngineImpl::Answer(Result result) {
  if constexpr (std::is_same_v<Result, absl::Status>) {
    refused_ = result;
  } else {
    refused_ = result.status();
  }
  return result;
}

// What an Operation holds.
struct Operation::State {
  std::shared_ptr<EngineImpl*> engine;  // null in it: the engine has ended
  Stream* stream = nullptr;             // that Use was given
  Pass pass = Pass::kForward;
  std::vector<ParameterId> parameters;
  std::vector<uint32_t> chunks;
  std::vector<ParameterId> written;
  bool finished = false;

  bool Open() const { return !finished && *engine != nullptr; }
  bool Has(ParameterId id) const;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_ENGINE_IMPL_H_
