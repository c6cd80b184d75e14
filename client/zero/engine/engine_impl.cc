#include "client/zero/engine/engine_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/disk/striped_files.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/farewell.h"
#include "client/zero/core/extent.h"
#include "client/zero/options/optimizer_options.h"
#include "client/zero/ranks/failure_of_any.h"
#include "client/zero/state/disk_choice.h"
#include "client/zero/state/state_placement.h"
#include "client/zero/update/disk_updates.h"
#include "client/zero/update/streamed_updates.h"
#include "client/zero/update/tensor_runs.h"
#include "client/zero/values/resumption.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {
namespace {

constexpr uint32_t kLandingPlaces = 2;  // one receives a copy while the other one is being updated

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Session* session,
                                                       collectives::Communicator* communicator,
                                                       std::vector<Parameter> parameters,
                                                       Options options) {
  auto engine = std::make_unique<EngineImpl>(session, communicator, std::move(parameters),
                                             std::move(options));
  if (absl::Status status = engine->Start(); !status.ok()) {
    // Another rank may have died meanwhile: this rank's state must survive for the next attempt.
    if (engine->may_resume()) session->LeaveToSuccessor();
    return status;
  }
  return engine;
}

Operation Engine::MakeOperation(std::unique_ptr<Operation::State> state) {
  return Operation(std::move(state));
}

EngineImpl::EngineImpl(Session* session, collectives::Communicator* communicator,
                       std::vector<Parameter> parameters, Options options)
    : setup_(session, communicator, std::move(parameters), std::move(options)),
      self_(std::make_shared<EngineImpl*>(this)),
      mutex_([this] { Publish(); }, [this] { return is_forked(); }) {}

EngineImpl::~EngineImpl() {
  if (is_forked()) {
    LeaveAlone();
    return;
  }
  const Lock lock(mutex_);
  *self_ = nullptr;
  // The mover may be waiting for ranks that would wait for this one.
  const bool unfinished = director_ != nullptr && director_->in_micro_batch();
  if (unfinished && standing_.failed.ok()) links_->Abort(WhyStopped());
  if (updater_ != nullptr && setup_.updates_in_backward()) updater_->Abandon();
  if (state_ != nullptr) state_->snapshotter().Stop();
  // The updater and the mover call each other.
  if (updater_ != nullptr) updater_->Stop();
  const bool passed = residency_ == nullptr || residency_->Stop();
  updater_.reset();
  if (!standing_.arena_claimed) return;
  const bool is_free = !LeavesMemory() && GiveMemoryBack().ok();
  links_.reset();
  if (!setup_.views.empty() && passed) DeviceOf(*setup_.session)->ReleaseViews();
  // Where chunks still lie, another engine could place none.
  if (is_free) UnclaimArena(*setup_.session);
}

// A forked child has neither the threads nor the mappings that the parts would end.
void EngineImpl::LeaveAlone() {
  *self_ = nullptr;
  const auto leave = [](auto&... parts) { ((void)parts.release(), ...); };
  leave(links_, optimizer_, store_, book_, director_, residency_, state_, updater_, plans_, step_);
}

// Whether the engine's memory stays with the session, because another process may go on from it.
bool EngineImpl::LeavesMemory() const {
  return IsLeft(*setup_.session) || (!standing_.failed.ok() && IsKept(*setup_.session));
}

// The engine may end in the middle of a step. Copies that are in progress then are waited for,
// because the daemon frees no chunk that is being copied. On an error the session frees the rest.
absl::Status EngineImpl::GiveMemoryBack() {
  Session& session = *setup_.session;
  const absl::Duration timeout = std::min(setup_.options.timeout, kFarewellTimeout);
  if (links_ != nullptr) links_->GiveSegmentsBack();
  GEMINID_RETURN_IF_ERROR(AwaitTransfers(session, timeout));
  GEMINID_RETURN_IF_ERROR(session.ReserveWorkspace(0, /*may_evict=*/false).Wait(timeout));
  absl::Status freed = session.Free(setup_.gathered);
  if (residency_ != nullptr) freed.Update(session.Free(residency_->left()));
  if (links_ != nullptr && links_->host_shards() != nullptr) {
    freed.Update(links_->host_shards()->Free());
  }
  if (store_ != nullptr) {
    freed.Update(store_->Free());
    freed.Update(store_->disk_count()->Free());
  }
  return freed;
}

// Every rank comes to both agreements, so the trainer's communicators are usable after a refusal.
absl::Status EngineImpl::Start() {
  const Options& options = setup_.options;
  const auto agree = [&](const absl::Status& mine) {
    collectives::Communicator* const all =
        options.all_ranks != nullptr ? options.all_ranks : setup_.communicator;
    return FailureOfAny(all, mine, options.timeout);
  };
  GEMINID_RETURN_IF_ERROR(agree(Prepare()));
  absl::Status started = ConnectRanks();
  // Other ranks may wait for this one in their communicators.
  if (!started.ok() && !absl::IsInvalidArgument(started)) {
    for (auto* const ranks : {setup_.communicator, options.all_ranks, options.host_ranks}) {
      if (ranks == nullptr) continue;
      ranks->Abort(absl::StrCat("rank ", ranks->Rank(), ": ", std::string(started.message())));
    }
    return started;
  }
  if (started.ok()) started = MakeParts();
  if (!started.ok() && links_ != nullptr) links_->Abort(std::string(started.message()));
  return agree(started);
}

// The part of construction that exchanges nothing with other ranks.
absl::Status EngineImpl::Prepare() {
  Session& session = *setup_.session;
  GEMINID_RETURN_IF_ERROR(CheckNotForked(session));
  // If the session has another engine, the state belongs to that engine.
  standing_.may_resume =
      setup_.options.resume && session.is_successor() && !IsArenaClaimed(session);
  GEMINID_RETURN_IF_ERROR(setup_.Check());
  GEMINID_RETURN_IF_ERROR(CheckPieces(setup_.parameters, setup_.options.model));
  standing_.arena_claimed = ClaimArena(session);
  if (!standing_.arena_claimed) {
    return absl::FailedPreconditionError(
        "the session has an engine already, or its last one failed or could not return its memory; "
        "end the engine that it has, or connect another session");
  }
  GEMINID_RETURN_IF_ERROR(MakeRooms());
  return setup_.options.stable_addresses ? MakeViews() : absl::OkStatus();
}

absl::Status EngineImpl::ConnectRanks() {
  GEMINID_ASSIGN_OR_RETURN(
      links_,
      RankLinks::Connect(setup_.session, setup_.communicator, setup_.parameters, setup_.options,
                         setup_.layout, [this](uint32_t chunk) { return NameOfGathered(chunk); }));
  return absl::OkStatus();
}

// Uses no communicator of the trainer.
absl::Status EngineImpl::MakeParts() {
  // Plans name chunks by their numbers, which must be the same on all ranks. The chunks of an
  // earlier process have the lowest numbers. So the state comes first if such chunks are possible.
  const bool state_first = IsOfRun(*setup_.session);
  if (!state_first) GEMINID_RETURN_IF_ERROR(AllocateGathered());
  GEMINID_ASSIGN_OR_RETURN(const RunPosition run, MakeState());
  if (state_first) GEMINID_RETURN_IF_ERROR(AllocateGathered());
  // Last, because only some ranks allocate for it, and later numbers may differ.
  GEMINID_RETURN_IF_ERROR(links_->ChargeSegments());
  GEMINID_RETURN_IF_ERROR(StartMoving());
  return MakeStep(run);
}

// Creates the parts that decide on chunks and place them.
absl::Status EngineImpl::MakeRooms() {
  GEMINID_RETURN_IF_ERROR(setup_.MakeLayout());
  std::vector<GradientBook::Tensor> tensors;
  for (uint32_t t = 0; t < setup_.parameters.size(); ++t) {
    const Parameter& parameter = setup_.parameters[t];
    tensors.push_back({parameter.name, setup_.layout.tensors[t].chunk, parameter.trainable,
                       parameter.backward_uses,
                       parameter.separate_gradient || setup_.weights_stay()});
  }
  const auto chunks = static_cast<uint32_t>(setup_.layout.chunks.size());
  book_ = std::make_unique<GradientBook>(std::move(tensors), chunks);
  std::vector<Director::Chunk> directed;
  for (uint32_t i = 0; i < book_->owners().size(); ++i) {
    const ChunkShape& owner = setup_.layout.chunks[book_->owners()[i]];
    const bool is_gradient = i >= chunks;
    directed.push_back({.bytes = RoundUpToExtent(owner.bytes()),
                        .is_gradient = is_gradient,
                        .stays = setup_.weights_stay() && !is_gradient,
                        .changes = owner.trainable,
                        .copied = setup_.options.host_ranks != nullptr && !is_gradient});
  }
  director_ = std::make_unique<Director>(std::move(directed));
  const auto refused = [this](const absl::Status& why) {
    const Lock lock(mutex_);
    standing_.refused = why;
  };
  const auto free_block = [self = self_](std::byte* data) {
    if (*self == nullptr || (*self)->is_forked()) return;
    const Lock lock((*self)->mutex_);
    (*self)->residency_->FreeInHole(data);
  };
  residency_ = std::make_unique<Residency>(
      setup_, *director_, book_->owners(),
      Residency::Calls{
          .grow = [this](uint64_t extent_bytes) { return GrowWorkspace(extent_bytes); },
          .holes = {[this](uint64_t bytes) { return AllocateInHole(bytes); }, free_block, refused},
          .fail = [this](const absl::Status& status) { return Fail(status); }});
  return absl::OkStatus();
}

absl::Status EngineImpl::AllocateGathered() {
  std::vector<ChunkSpec> specs;
  for (uint32_t i = 0; i < book_->owners().size(); ++i) {
    const uint32_t owner = book_->owners()[i];
    specs.push_back(
        {absl::StrCat(i == owner ? "weights of " : "gradient of ", NameOf(setup_.layout, owner)),
         ChunkKind::kGatheredWeight, setup_.layout.chunks[owner].bytes(),
         /*has_home=*/false});
  }
  GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkHandle> handles, setup_.session->Allocate(specs));
  for (const ChunkHandle& handle : handles) setup_.gathered.push_back(handle.id);
  HostShards* const shards = links_->host_shards();
  return shards == nullptr ? absl::OkStatus() : shards->Allocate(setup_.session, setup_.layout);
}

absl::Status EngineImpl::MakeViews() {
  uint64_t bytes = 0;
  for (uint32_t owner : book_->owners()) {
    setup_.views.push_back(bytes);
    bytes += RoundUpToExtent(setup_.layout.chunks[owner].bytes());
  }
  return DeviceOf(*setup_.session)->ReserveViews(bytes);
}

StateStoreOptions EngineImpl::StoreOptions() const {
  const Options& options = setup_.options;
  StateStoreOptions made = {.accumulate = options.accumulate > 1 && !setup_.sums_gradients(),
                            .landing_places = setup_.updates_in_backward() ? kLandingPlaces : 0,
                            .on_device = options.placement == Placement::kDevice ||
                                         options.state_placement == StatePlacement::kDevice,
                            .gradient_sums = setup_.sums_gradients(),
                            .state_arrays = optimizer_->state_arrays(),
                            .whole_state_arrays = optimizer_->matrix_state_arrays(),
                            .state_type = options.state_type,
                            .optimizer = ToKernel(options.optimizer).kind,
                            .tensor_state_bytes = optimizer_->tensor_state_bytes(),
                            .device_scale_bytes = optimizer_->device_scale_bytes(),
                            .resume = options.resume,
                            .timeout = options.timeout};
  if (options.state_placement == StatePlacement::kStreamed) {
    made.streamed = StreamedGranules(setup_.layout);
  }
  if (setup_.has_disk()) {
    made.disk = {.disk = options.state_disk,
                 .name = NameOfRank(*setup_.session),
                 .kept = IsKept(*setup_.session),
                 .timeout = options.timeout,
                 .counters = CountersOf(*setup_.session)};
  }
  if (IsOfRun(*setup_.session)) made.noted_tensors = setup_.parameters.size();
  return made;
}

// All ranks choose the same chunks, so that they also move the same ones to their devices: as many
// as the rank with the least room must put on disk.
absl::Status EngineImpl::ChooseDisk(StateStoreOptions* options) {
  if (!options->disk.has_value()) return absl::OkStatus();
  if (setup_.options.state_placement != StatePlacement::kAuto) {
    options->on_disk = LastChunks(setup_.layout, *options, setup_.layout.chunks.size());
    return absl::OkStatus();
  }
  GEMINID_ASSIGN_OR_RETURN(uint64_t room, HostRoom(*setup_.session));
  GEMINID_ASSIGN_OR_RETURN(const uint64_t shared, links_->SegmentBytes());
  room -= std::min(room, shared);
  if (links_->host_shards() != nullptr && IsOfRun(*setup_.session)) {  // allocated after the state
    room -= std::min(room, links_->host_shards()->BytesFor(setup_.layout));
  }
  if (options->noted_tensors.has_value()) {
    room -= std::min(room, StepNotes::BytesFor(*options->noted_tensors));
  }
  const DiskChoice own = ChooseOnDisk(setup_.layout, *options, room);
  std::vector<double> most = {static_cast<double>(own.chunks)};
  GEMINID_RETURN_IF_ERROR(links_->agreement().Worst(&most));
  DiskChoice choice = WithOnDisk(setup_.layout, *options, own, static_cast<size_t>(most.front()));
  standing_.why_on_disk = WhyOnDisk(choice);
  options->on_disk = std::move(choice.on_disk);
  return absl::OkStatus();
}

absl::StatusOr<RunPosition> EngineImpl::MakeState() {
  optimizer_ = std::make_unique<GranuleOptimizer>(setup_.layout, setup_.parameters, links_->rank(),
                                                  setup_.options);
  GEMINID_RETURN_IF_ERROR(optimizer_->status());
  GEMINID_RETURN_IF_ERROR(links_->CheckCounted(optimizer_->CountedElements()));
  StateStoreOptions options = StoreOptions();
  GEMINID_ASSIGN_OR_RETURN(
      options.workspace_bytes,
      optimizer_->WorkspaceBytes(static_cast<size_t>(setup_.options.update_threads)));
  GEMINID_RETURN_IF_ERROR(ChooseDisk(&options));
  GEMINID_ASSIGN_OR_RETURN(store_, StateStore::Create(setup_.session, setup_.layout, options));
  optimizer_->SetWorkspace(store_->Workspace());
  RunPosition run;
  if (const shm::CommitRecord* last = shm::NewestRecord(*store_->commit()); last != nullptr) {
    run.epoch = last->epoch;
  }
  if (options.resume) {
    Resumption resumption(setup_, store_.get(), optimizer_.get(), links_.get());
    GEMINID_ASSIGN_OR_RETURN(standing_.resumed, resumption.Resume(&run));
    standing_.may_resume = standing_.may_resume && standing_.resumed.has_value();
  }
  if (store_->is_claimed() && !standing_.resumed.has_value()) {
    options.disk_count = store_->disk_count();
    GEMINID_RETURN_IF_ERROR(store_->Free());
    options.resume = false;
    GEMINID_ASSIGN_OR_RETURN(store_, StateStore::Create(setup_.session, setup_.layout, options));
    optimizer_->SetWorkspace(store_->Workspace());
  }
  if (store_->any_on_disk()) {
    AtDetach(*setup_.session,
             [names = store_->disk()->names(), identity = store_->disk()->identity()] {
               disk::RemoveFiles(names, identity);
             });
  }
  if (options.disk.has_value()) SayStateOnDisk(options);
  state_ = std::make_unique<StateIo>(setup_, store_.get(), links_.get());
  residency_->SetStateBytes(store_->device_bytes());
  return run;
}

// What a predecessor had there is not moved.
void EngineImpl::SayStateOnDisk(const StateStoreOptions& options) {
  const bool is_auto = setup_.options.state_placement == StatePlacement::kAuto;
  const auto wanted = static_cast<size_t>(std::ranges::count(options.on_disk, true));
  const size_t there = store_->chunks_on_disk();
  if (!is_auto && there == wanted) {
    standing_.why_on_disk = there > 0 ? "all on disk" : "";
  } else if (standing_.resumed.has_value()) {
    const auto trained = std::ranges::count(setup_.layout.chunks, true, &ChunkShape::trainable);
    const std::string some = there == 0 ? "none" : absl::StrCat(there, " of ", trained, " chunks");
    standing_.why_on_disk =
        absl::StrCat(some, " on disk, as the process before this one left it",
                     is_auto ? "" : "; only a run that begins anew can move all of them to disk");
  }
}

absl::Status EngineImpl::StartMoving() {
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<kernels::ThreadPool> pool, setup_.MakeUpdatePool());
  std::unique_ptr<UpdatesAhead> ahead;
  if (store_->any_on_disk()) ahead = std::make_unique<DiskUpdates>(store_.get(), *optimizer_);
  if (store_->any_streamed()) {
    GEMINID_ASSIGN_OR_RETURN(
        ahead, StreamedUpdates::Create(setup_.session, setup_.layout, store_.get(), *optimizer_,
                                       setup_.options.timeout));
    residency_->SetStateBytes(store_->device_bytes());
  }
  const auto updated = [this](const absl::Status& status) { residency_->mover().Notify(status); };
  const auto before_update = [this](uint32_t granule, uint64_t epoch) {
    state_->snapshotter().BeforeUpdate(granule, epoch);
  };
  GEMINID_ASSIGN_OR_RETURN(
      updater_, Updater::Create(setup_.layout, *optimizer_, store_.get(), std::move(pool), updated,
                                before_update, std::move(ahead)));
  MoverContext context;
  context.store = store_.get();
  context.communicator = links_->mover();
  context.device_communicator = links_->devices();
  context.host_shards = links_->host_shards();
  context.weights_current = [this](uint32_t chunk) { return updater_->IsCurrent(chunk); };
  context.updates = setup_.updates_in_backward() ? updater_.get() : nullptr;
  context.names = [this](uint32_t chunk) { return NameOfGathered(chunk); };
  return residency_->Start(std::move(context));
}

absl::Status EngineImpl::MakeStep(const RunPosition& run) {
  plans_ = std::make_unique<StepPlans>(
      setup_, StepPlans::Parts{.links = links_.get(),
                               .director = director_.get(),
                               .residency = residency_.get(),
                               .store = store_.get(),
                               .book = book_.get(),
                               .move_state = [this](std::span<const uint32_t> chunks) {
                                 return MoveStateToDevice(chunks);
                               }});
  step_ = std::make_unique<GradientStep>(setup_,
                                         GradientStep::Parts{.links = links_.get(),
                                                             .optimizer = optimizer_.get(),
                                                             .store = store_.get(),
                                                             .updater = updater_.get(),
                                                             .mover = &residency_->mover(),
                                                             .book = book_.get()},
                                         run);
  GEMINID_RETURN_IF_ERROR(ReadHostBytes());
  Publish();
  return absl::OkStatus();
}

std::string EngineImpl::NameOfGathered(uint32_t chunk) const {
  const uint32_t owner = book_->owners()[chunk];
  return absl::StrCat(chunk == owner ? "" : "the gradient of ", setup_.NamesIn(owner));
}

// Called when memory was allocated or freed, so that statistics never wait for the daemon.
absl::Status EngineImpl::ReadHostBytes() {
  absl::StatusOr<uint64_t> bytes = setup_.session->HostBytes();
  const SavedActivations* const saved = residency_->saved_activations();
  if (bytes.ok()) standing_.host_bytes = *bytes - (saved == nullptr ? 0 : saved->host_bytes());
  return bytes.status();
}

absl::Status EngineImpl::Fail(const absl::Status& status) {
  if (!status.ok() && standing_.failed.ok() && !is_forked()) {
    standing_.failed = status;
    published_.Fail(status);
    residency_->mover().Fail(status);
    links_->Abort(std::string(status.message()));
  }
  return status;
}

// The error that the trainer gave the other ranks, else the one that it stopped for.
std::string EngineImpl::WhyStopped() const {
  std::string why = "stopped in the middle of a step";
  const absl::Status told = links_->health();
  const absl::Status& cause = told.ok() ? standing_.refused : told;
  if (!cause.ok()) absl::StrAppend(&why, ": ", std::string(cause.message()));
  return why;
}

absl::Status EngineImpl::Health() {
  GEMINID_RETURN_IF_ERROR(CheckNotForked(*setup_.session));
  if (!standing_.failed.ok()) return standing_.failed;
  return Fail(residency_->mover().status());
}

absl::Status EngineImpl::HealthOnDevice() {
  GEMINID_RETURN_IF_ERROR(Health());
  return standing_.wait_ended;
}

}  // namespace geminid::zero
