// The engine that callers see. It locks, checks whether a call is allowed now, and delegates to its
// parts. docs/architecture.md shows which part serves which call.
#ifndef GEMINID_CLIENT_ZERO_ENGINE_ENGINE_IMPL_H_
#define GEMINID_CLIENT_ZERO_ENGINE_ENGINE_IMPL_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/session_internal.h"
#include "client/zero/core/director.h"
#include "client/zero/core/gradient_book.h"
#include "client/zero/engine/published.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/ranks/rank_links.h"
#include "client/zero/residency/residency.h"
#include "client/zero/state/state_store.h"
#include "client/zero/step/gradient_step.h"
#include "client/zero/step/step_gradients.h"
#include "client/zero/step/step_plans.h"
#include "client/zero/update/granule_optimizer.h"
#include "client/zero/update/updater.h"
#include "client/zero/values/state_io.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "proto/shm/chunk_state.h"

namespace geminid::zero {

class EngineImpl final : public Engine {
 public:
  EngineImpl(Session* session, collectives::Communicator* communicator,
             std::vector<Parameter> parameters, Options options);
  ~EngineImpl() override;

  // The part of construction that can fail.
  absl::Status Start();
  // The state of an earlier process is there, and no rank has said that the run cannot resume.
  bool may_resume() const { return standing_.may_resume; }

  absl::Status Initialize(const Fill& fill) override;
  absl::Status InitializeShards(const FillRange& fill) override;
  void Invalidate(std::string why) override;
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
  uint64_t DeviceBytes(std::span<const ParameterId> weights,
                       std::span<const ParameterId> gradients) const override;
  Workspace& workspace() override { return residency_->workspace(); }
  absl::StatusOr<ActivationStack*> MakeActivationStack(const ActivationShape& shape) override;
  absl::StatusOr<ActivationStore*> MakeActivationStore(const ActivationStoreOptions& options);
  absl::Status ReportWorkspace(uint64_t bytes) override {
    return residency_->workspace().Report(bytes);
  }
  absl::StatusOr<double> GradientNorm() override;
  absl::StatusOr<StepResult> Step(const StepInput& input) override;
  double loss_scale() const override {
    const Lock lock(mutex_);
    return step_->loss_scale();
  }
  absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) override;
  std::vector<ShardRange> ShardOf(ParameterId id) const override { return state_->ShardOf(id); }
  bool HasState(ParameterId id, StateKind kind) const override { return state_->Has(id, kind); }
  DataType state_type() const override { return setup_.options.state_type; }
  const char* optimizer_name() const override { return Name(setup_.options.optimizer); }
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
  std::optional<PlanInForce> GetPlan() const override;
  absl::Status health() const override;
  std::optional<Resumed> resumed() const override { return standing_.resumed; }
  absl::Status Meet(std::string_view words) override;

  // step_gradients.h
  void MeasureStepGradients();
  StepGradients newest_step_gradients() const {
    const Lock lock(mutex_);
    return step_->newest_gradients();
  }

  // Whether this process is a forked child of the one that made the engine.
  bool is_forked() const { return !CheckNotForked(*setup_.session).ok(); }

  // For Operation, which must be open.
  const std::byte* WeightOf(ParameterId id) const;
  // Queues the copy on `stream`; null: waits for it.
  absl::Status CopyWeight(ParameterId id, std::byte* to, Stream* stream);
  std::byte* GradientOf(ParameterId id) const;
  bool GradientAccumulates(ParameterId id) const;
  absl::Status GradientWritten(ParameterId id);
  // The work that uses the chunks is queued on `stream`; null: the work is complete.
  absl::Status FinishOperation(std::span<const uint32_t> chunks, Stream* stream);
  absl::StatusOr<Stream*> StreamOf(StreamHandle handle) const {
    return DeviceOf(*setup_.session)->StreamOf(handle);
  }

 private:
  using Lock = std::lock_guard<CallMutex>;
  // The state of the engine as a whole.
  struct EngineStatus {
    absl::Status failed;      // why the engine has failed for good
    absl::Status wait_ended;  // why waiting for the arena ended; not OK: there is no arena any more
    absl::Status refused;     // the error of the trainer's last call, if the engine refused it
    absl::Status unfilled;    // not OK: setting values failed, and nothing has set them since
    bool arena_claimed = false;
    bool may_resume = false;
    std::optional<Resumed> resumed{};
    uint64_t micro_batches = 0;  // completed micro-batches
    std::string why_on_disk{};   // why how much of the state is on disk, if it may be there
    // From the daemon's ledger after the last change, without the ActivationStore's bytes.
    uint64_t host_bytes = 0;
  };

  // engine_impl.cc: creation, health and the end
  absl::Status Prepare();
  absl::Status ConnectRanks();
  absl::Status MakeParts();
  absl::Status MakeRooms();
  absl::Status AllocateGathered();
  absl::Status MakeViews();
  absl::StatusOr<RunPosition> MakeState();
  StateStoreOptions StoreOptions() const;
  absl::Status ChooseDisk(StateStoreOptions* options);
  void SayStateOnDisk(const StateStoreOptions& options);
  absl::Status StartMoving();
  absl::Status MakeStep(const RunPosition& run);
  // A name for people: what a place in the arena holds.
  std::string NameOfGathered(uint32_t chunk) const;
  // Ends the engine with its first error, and tells all ranks. Returns `status`.
  absl::Status Fail(const absl::Status& status);
  // Records the result of a trainer's call; if the trainer stops for it, other ranks learn why.
  template <typename Result>
  Result NoteAnswer(Result result);
  std::string WhyStopped() const;
  absl::Status Health();
  // As Health, and whether there is a device to compute on.
  absl::Status HealthOnDevice();
  absl::Status ReadHostBytes();
  void LeaveAlone();
  bool LeavesMemory() const;
  absl::Status GiveMemoryBack();

  // engine_statistics.cc: statistics, which never wait
  void Publish();
  Statistics StatisticsOf(const Published::Basis& basis) const;

  // engine_state.cc: values and state of parameters, set and read
  absl::Status CheckNotStarted(const char* call);
  absl::Status CheckNew(const char* call);
  absl::Status CheckBetweenSteps(const char* call);
  absl::Status CheckStateOfLastStep(const char* call);
  absl::Status CheckGradientCall(const char* call, ParameterId id);
  absl::Status CheckPlaces(uint32_t places, uint64_t place_bytes) const;
  // On all ranks. `mine`: OK, or what this rank lacks. If any rank lacks anything, nothing changes.
  absl::StatusOr<std::vector<ChunkId>> MakePlaces(const absl::Status& mine, uint32_t places,
                                                  uint64_t place_bytes);
  // Without the places in memory that they need.
  absl::StatusOr<std::unique_ptr<OffloadedActivations>> PrepareActivations(
      const ActivationShape& shape) const;
  void BeginFill(const char* call);
  absl::Status AgreeOnFill(const char* call, const absl::Status& filled);
  absl::Status ForgetDeviceCopies();
  absl::Status WaitNobodyReadsState();
  absl::Status MoveStateToDevice(std::span<const uint32_t> chunks);

  // engine_moments.cc: operators, and the work between them. In all of these functions, `stream`
  // null means that the caller's thread waits.
  absl::Status CheckUse(Pass pass, std::span<const ParameterId> parameters) const;
  absl::Status CheckNotUpdated(std::span<const ParameterId> parameters) const;
  absl::StatusOr<Operation> Begin(Pass pass, std::span<const ParameterId> parameters,
                                  Stream* stream);
  absl::Status BeginOperator(bool evaluate, const std::vector<uint32_t>& chunks,
                             uint64_t workspace_bytes, Stream* stream);
  std::vector<uint32_t> ChunksOf(Pass pass, std::span<const ParameterId> parameters) const;
  absl::Status SynchronizeStreams();
  absl::Status ReduceIfComplete(uint32_t chunk);
  absl::Status Reduce(uint32_t chunk);
  absl::Status OpenGradient(uint32_t chunk);
  absl::Status PlaceGradient(uint32_t storage, bool planned, uint64_t workspace_bytes,
                             Stream* stream);
  absl::Status CheckAddGradient(ParameterId id, std::span<const std::byte> gradient,
                                DataType type) const;
  absl::Status AddGradientOn(ParameterId id, std::span<const std::byte> gradient, DataType type,
                             Stream* stream);
  absl::Status AddTo(uint32_t tensor, std::span<const std::byte> gradient, DataType type,
                     Stream* stream);
  absl::Status GrowWorkspace(uint64_t extent_bytes);
  absl::StatusOr<std::byte*> AllocateInHole(uint64_t bytes);

  // engine_yield.cc: the arena goes to another job and comes back
  absl::StatusOr<bool> AllRanks(bool mine);
  absl::Status YieldIfAsked();
  absl::Status AwaitArena();
  absl::Status LeaveArena();

  // engine_step.cc: micro-batches, and the end of steps
  absl::Status CheckNothingOpen(const char* call) const;
  absl::Status CheckMicroBatches(const char* call) const;
  absl::Status EndMicroBatch(bool step_ends);
  std::vector<uint32_t> Incomplete(bool step_ends) const;
  absl::Status CheckRoomToReduce(bool step_ends);
  absl::Status ReduceIncomplete(bool step_ends);
  absl::StatusOr<double> NormOfStep(const AgreedFields& step);
  absl::Status NotOfStep(const absl::Status& status);
  absl::Status CheckStep(const char* call) const;
  absl::Status NameNotFinite(double norm);
  absl::Status DiskSpent() const;
  // Micro-batches that have begun in this step.
  int MicroBatchesBegun() const {
    return step_->micro_batches() + (director_->in_micro_batch() ? 1 : 0);
  }

  EngineSetup setup_;
  // Operations hold this pointer to the engine. It points to null after the engine has ended.
  const std::shared_ptr<EngineImpl*> self_;
  mutable CallMutex mutex_;
  Published published_;
  EngineStatus standing_;
  std::unique_ptr<RankLinks> links_;
  std::unique_ptr<GranuleOptimizer> optimizer_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<GradientBook> book_;
  std::unique_ptr<Director> director_;
  std::unique_ptr<Residency> residency_;  // destroyed after updater_, which notifies its mover
  std::unique_ptr<StateIo> state_;        // destroyed after updater_, which calls its snapshotter
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<StepPlans> plans_;
  std::unique_ptr<GradientStep> step_;
};

template <typename Result>
Result EngineImpl::NoteAnswer(Result result) {
  if constexpr (std::is_same_v<Result, absl::Status>) {
    standing_.refused = result;
  } else {
    standing_.refused = result.status();
  }
  return result;
}

// The contents of an Operation.
struct Operation::State {
  std::shared_ptr<EngineImpl*> engine;  // points to null after the engine has ended
  Stream* stream = nullptr;             // the one that Use was given
  Pass pass = Pass::kForward;
  std::vector<ParameterId> parameters;
  std::vector<uint32_t> chunks;
  std::vector<ParameterId> written;
  bool finished = false;

  bool Open() const { return !finished && *engine != nullptr && !(*engine)->is_forked(); }
  bool Has(ParameterId id) const;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_ENGINE_ENGINE_IMPL_H_
