#include "client/zero/engine_impl.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/core/extent.h"
#include "client/zero/data_types.h"
#include "client/zero/tensor_runs.h"

namespace geminid::zero {
namespace {

uint64_t ElementsOf(const Parameter& parameter) {
  uint64_t elements = 1;
  for (int64_t dimension : parameter.shape) {
    if (dimension <= 0) return 0;
    elements *= static_cast<uint64_t>(dimension);
  }
  return elements;
}

constexpr uint32_t kLandingPlaces = 2;  // one is copied to while another one's update is made

// For which a daemon that does not answer is waited for by an engine that ends.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(10);

// Streams are measured by it too, on their own threads.
std::function<absl::Time()> ClockOf(const Options& options) {
  if (!options.clock) return [] { return base::MonotonicNow(); };
  return [clock = options.clock, mutex = std::make_shared<std::mutex>()] {
    const std::lock_guard lock(*mutex);
    return clock();
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Session* session,
                                                       collectives::Communicator* communicator,
                                                       std::vector<Parameter> parameters,
                                                       Options options) {
  collectives::Communicator* const all = options.all_ranks;
  collectives::Communicator* const host = options.host_ranks;
  auto engine = std::make_unique<EngineImpl>(session, communicator, std::move(parameters),
                                             std::move(options));
  if (absl::Status status = engine->Start(); !status.ok()) {
    for (collectives::Communicator* const ranks : {communicator, all, host}) {
      if (ranks == nullptr) continue;
      ranks->Abort(absl::StrCat("rank ", ranks->Rank(), ": ", std::string(status.message())));
    }
    // Another rank may have died meanwhile: this one's state must be there when all try again.
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
    : session_(session),
      communicator_(communicator),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      clock_(ClockOf(options_)),
      self_(std::make_shared<EngineImpl*>(this)),
      mutex_([this] { Publish(); }),
      loss_scaler_(options_.loss_scale.value_or(FixedLossScale(1))),
      times_(clock_) {}

EngineImpl::~EngineImpl() {
  const Lock lock(mutex_);
  *self_ = nullptr;
  // The mover may be waiting for ranks that would wait for this one.
  const bool unfinished = director_ != nullptr && director_->in_micro_batch();
  if (unfinished && status_.ok()) links_->Abort(WhyStopped());
  if (updater_ != nullptr && updates_in_backward()) updater_->Abandon();
  if (snapshotter_ != nullptr) snapshotter_->Stop();
  // Each calls the other.
  if (updater_ != nullptr) updater_->Stop();
  const bool passed = mover_ == nullptr || mover_->StreamsPassed();
  mover_.reset();
  updater_.reset();
  if (!arena_claimed_) return;
  if (status_.ok() && !IsLeft(*session_)) GiveMemoryBack();
  links_.reset();
  if (!views_.empty() && passed) DeviceOf(*session_)->ReleaseViews();
  UnclaimArena(*session_);
}

// What is still being moved, in the middle of a step, stays with the session.
void EngineImpl::GiveMemoryBack() {
  const absl::Duration timeout = std::min(options_.timeout, kFarewellTimeout);
  if (links_ != nullptr) links_->GiveSegmentsBack();
  if (!session_->ReserveWorkspace(0, /*may_evict=*/false).Wait(timeout).ok()) return;
  session_->Free(gathered_).IgnoreError();
  if (links_ != nullptr && links_->host_shards() != nullptr) {
    links_->host_shards()->Free().IgnoreError();
  }
  // Should it fail, that stays until the session ends.
  if (store_ != nullptr) store_->Free().IgnoreError();
}

absl::Status EngineImpl::CheckArguments() const {
  if (session_->arena_bytes() == 0) {
    return absl::InvalidArgumentError(
        "the session has no device arena; connect with device_memory_bytes");
  }
  if (options_.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("timeout must be positive");
  }
  if (options_.accumulate < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("accumulate is ", options_.accumulate, "; it must be at least 1"));
  }
  if (options_.micro_batch_parts < 1 ||
      (options_.micro_batch_parts > 1 && options_.accumulate == 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "micro_batch_parts is ", options_.micro_batch_parts, " with accumulate ",
        options_.accumulate, "; it must be 1, or more where a step has several micro-batches"));
  }
  if (options_.update_threads < 1 || options_.update_threads > kMaxUpdateThreads) {
    return absl::InvalidArgumentError(absl::StrCat("update_threads is ", options_.update_threads,
                                                   "; it must be from 1 to ", kMaxUpdateThreads));
  }
  if (!(options_.clip_norm >= 0)) {
    return absl::InvalidArgumentError("clip_norm must be 0 (off) or positive");
  }
  GEMINID_RETURN_IF_ERROR(CheckNotFinite());
  GEMINID_RETURN_IF_ERROR(CheckStage());
  GEMINID_RETURN_IF_ERROR(CheckOptimizer(options_.optimizer));
  if (updates_in_backward()) GEMINID_RETURN_IF_ERROR(CheckUpdatesInBackward());
  GEMINID_RETURN_IF_ERROR(CheckAllRanks());
  if (!(options_.state_share >= 0 && options_.state_share <= 1)) {
    return absl::InvalidArgumentError("state_share must be from 0 to 1");
  }
  if (options_.placement == Placement::kDevice &&
      options_.state_placement == StatePlacement::kHost) {
    return absl::InvalidArgumentError(
        "with placement device the optimizer's state is on the device too; use state placement "
        "auto or device, or placement auto");
  }
  std::set<std::string> names;
  for (const Parameter& parameter : parameters_) {
    if (!names.insert(parameter.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two parameters are called '", parameter.name, "'"));
    }
    GEMINID_RETURN_IF_ERROR(CheckParameter(parameter));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::CheckNotFinite() const {
  if (options_.loss_scale.has_value()) {
    GEMINID_RETURN_IF_ERROR(CheckLossScaler(*options_.loss_scale));
    if (options_.not_finite != NotFinite::kSkip) {
      return absl::InvalidArgumentError(
          "loss scaling finds its scale by steps that are not finite, and skips them; leave "
          "Options::not_finite at kSkip");
    }
  }
  if (options_.not_finite == NotFinite::kWrite && !IsElementwise(options_.optimizer)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(options_.optimizer),
                     " needs sums over whole tensors, which are finite: with it steps "
                     "that are not are skipped or fail (Options::not_finite)"));
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::CheckParameter(const Parameter& parameter) const {
  if (ElementsOf(parameter) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' has a dimension that is not positive"));
  }
  const DataType type = TypeOf(parameter, options_);
  if (type != DataType::kBFloat16 && type != DataType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' has data type ", static_cast<int>(type),
                     ", which does not exist; parameters are of bf16 or fp32"));
  }
  const bool rate_ok =
      std::isfinite(parameter.learning_rate_scale) && parameter.learning_rate_scale >= 0;
  const double decay = parameter.weight_decay.value_or(0);
  if (!rate_ok || !std::isfinite(decay) || decay < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name,
                     "' needs a learning_rate_scale and weight_decay that are finite and not "
                     "negative"));
  }
  if (parameter.backward_uses < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", parameter.name, "' has negative backward_uses; 0 stands for any number"));
  }
  return absl::OkStatus();
}

// Nothing but its own gradient may be needed for an element's update.
absl::Status EngineImpl::CheckUpdatesInBackward() const {
  const char* why = nullptr;
  if (options_.clip_norm > 0) why = "clipping needs the norm of the whole gradient first";
  if (options_.loss_scale.has_value()) why = "loss scaling may leave a whole step out";
  if (options_.accumulate > 1) why = "gradients are complete with the last micro-batch only";
  if (!IsElementwise(options_.optimizer)) why = "the optimizer needs sums over whole tensors first";
  for (const Parameter& parameter : parameters_) {
    if (!parameter.update_without_gradient) {
      why = "which parameters have no gradient is known at the step's end only";
    }
  }
  if (why == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameters cannot be updated in the backward pass: ", why));
}

absl::Status EngineImpl::Start() {
  // Where there is another engine, what is there is that one's.
  may_resume_ = options_.resume && session_->is_successor() && !IsArenaClaimed(*session_);
  GEMINID_RETURN_IF_ERROR(CheckArguments());
  GEMINID_RETURN_IF_ERROR(CheckPieces(parameters_, options_.model));
  arena_claimed_ = ClaimArena(*session_);
  if (!arena_claimed_) {
    return absl::FailedPreconditionError(
        "the session has an engine already; end that one first, or connect another session");
  }
  // Plans name chunks by their numbers, which must be the same on all ranks. What a predecessor
  // left has the lowest ones: where there may be one, that comes first.
  const bool state_first = IsOfRun(*session_);
  GEMINID_RETURN_IF_ERROR(MakeLayout());
  if (options_.stable_addresses) GEMINID_RETURN_IF_ERROR(MakeViews());
  GEMINID_ASSIGN_OR_RETURN(
      links_, RankLinks::Connect(session_, communicator_, parameters_, options_, layout_,
                                 [this](uint32_t chunk) { return NameOfGathered(chunk); }));
  if (!state_first) GEMINID_RETURN_IF_ERROR(AllocateGathered());
  GEMINID_RETURN_IF_ERROR(MakeStateStore());
  if (state_first) GEMINID_RETURN_IF_ERROR(AllocateGathered());
  workspace_ = std::make_unique<ArenaWorkspace>(
      session_->arena(), session_->arena_bytes(), &meter_,
      [this](uint64_t extent_bytes) { return GrowWorkspace(extent_bytes); },
      ArenaWorkspace::Holes{[this](uint64_t bytes) { return AllocateInHole(bytes); },
                            [self = self_](std::byte* data) {
                              if (*self != nullptr) (*self)->FreeInHole(data);
                            },
                            [this](const absl::Status& why) {
                              const Lock lock(mutex_);
                              refused_ = why;
                            }});
  GEMINID_ASSIGN_OR_RETURN(
      compute_, Compute::CreateForCaller(DeviceOf(*session_), "geminid-engine", options_.timeout));
  // Last, as only some ranks have any: see above.
  GEMINID_RETURN_IF_ERROR(links_->ChargeSegments());
  return MakeThreads();
}

absl::Status EngineImpl::MakeStateStore() {
  optimizer_ =
      std::make_unique<GranuleOptimizer>(layout_, parameters_, communicator_->Rank(), options_);
  GEMINID_RETURN_IF_ERROR(optimizer_->status());
  GEMINID_RETURN_IF_ERROR(links_->CheckCounted(optimizer_->CountedElements()));
  StateStoreOptions options = {.accumulate = options_.accumulate > 1 && !sums_gradients(),
                               .landing_places = updates_in_backward() ? kLandingPlaces : 0,
                               .on_device = options_.placement == Placement::kDevice ||
                                            options_.state_placement == StatePlacement::kDevice,
                               .gradient_sums = sums_gradients(),
                               .state_arrays = optimizer_->state_arrays(),
                               .tensor_state_bytes = optimizer_->tensor_state_bytes(),
                               .device_scale_bytes = optimizer_->device_scale_bytes(),
                               .resume = options_.resume,
                               .timeout = options_.timeout};
  if (IsOfRun(*session_)) options.noted_tensors = parameters_.size();
  GEMINID_ASSIGN_OR_RETURN(store_, StateStore::Create(session_, layout_, options));
  if (const shm::CommitRecord* last = shm::NewestRecord(*store_->commit()); last != nullptr) {
    committed_.epoch = last->epoch;
  }
  bool resumed = false;
  if (options_.resume) {
    GEMINID_ASSIGN_OR_RETURN(resumed, ResumeState());
    may_resume_ = may_resume_ && resumed;
  }
  if (store_->is_claimed() && !resumed) {
    GEMINID_RETURN_IF_ERROR(store_->Free());
    options.resume = false;
    GEMINID_ASSIGN_OR_RETURN(store_, StateStore::Create(session_, layout_, options));
  }
  values_ = std::make_unique<ShardValues>(*store_);
  placer_->SetFloor(store_->device_bytes());
  meter_.AddModel(static_cast<int64_t>(store_->device_bytes()));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> EngineImpl::MakeUpdatePool() const {
  std::unique_ptr<kernels::ThreadPool> pool;
  if (kernels::ThreadPool::Create({.threads = static_cast<size_t>(options_.update_threads)},
                                  &pool) != kernels::Status::kOk) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the system gives no ", options_.update_threads, " threads; use fewer update_threads"));
  }
  return pool;
}

absl::Status EngineImpl::MakeThreads() {
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<kernels::ThreadPool> pool, MakeUpdatePool());
  snapshotter_ = std::make_unique<Snapshotter>(layout_, elements_, communicator_->Rank(), *values_);
  GEMINID_ASSIGN_OR_RETURN(updater_,
                           Updater::Create(
                               layout_, *optimizer_, store_.get(), std::move(pool),
                               [this](const absl::Status& status) { mover_->Notify(status); },
                               [this](uint32_t granule, uint64_t epoch) {
                                 snapshotter_->BeforeUpdate(granule, epoch);
                               }));
  GEMINID_RETURN_IF_ERROR(MakeMover());
  SetUpdateOrder();
  GEMINID_RETURN_IF_ERROR(ReadHostBytes());
  Publish();
  return absl::OkStatus();
}

absl::Status EngineImpl::MakeMover() {
  MoverContext context;
  context.session = session_;
  context.layout = &layout_;
  context.store = store_.get();
  context.communicator = links_->mover();
  context.device_communicator = links_->devices();
  context.host_shards = links_->host_shards();
  context.accumulate = sums_gradients() ? 1 : options_.accumulate;
  context.summed = sums_gradients() ? options_.accumulate : 1;
  context.meter = &meter_;
  context.gathered = gathered_;
  context.owners = book_->owners();
  context.views = views_;
  context.weights_current = [this](uint32_t chunk) { return updater_->IsCurrent(chunk); };
  context.updates = updates_in_backward() ? updater_.get() : nullptr;
  context.names = [this](uint32_t chunk) { return NameOfGathered(chunk); };
  context.clock = clock_;
  context.timeout = options_.timeout;
  context.device = DeviceOf(*session_);
  absl::StatusOr<std::unique_ptr<Compute>> compute =
      Compute::Create(context.device, "geminid-moves", options_.timeout);
  if (!compute.ok()) return compute.status();
  GEMINID_ASSIGN_OR_RETURN(mover_, Mover::Create(std::move(context), *std::move(compute)));
  return absl::OkStatus();
}

// When memory was allocated or freed: a look at the statistics must not wait for the daemon.
absl::Status EngineImpl::ReadHostBytes() {
  absl::StatusOr<uint64_t> bytes = session_->HostBytes();
  if (bytes.ok()) host_bytes_ = *bytes;
  return bytes.status();
}

absl::Status EngineImpl::MakeLayout() {
  std::vector<TensorShape> shapes;
  for (const Parameter& parameter : parameters_) {
    elements_.push_back(ElementsOf(parameter));
    shapes.push_back({elements_.back(), parameter.trainable, SizeOf(TypeOf(parameter, options_)),
                      parameter.unit});
  }
  absl::StatusOr<Layout> layout =
      zero::MakeLayout(shapes, {.world_size = communicator_->WorldSize(),
                                .chunk_elements = options_.chunk_elements,
                                .extent_bytes = kExtentAlignmentBytes});
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) names.push_back(parameter.name);
  NameChunks(names, &layout_);
  std::vector<GradientBook::Tensor> tensors;
  for (uint32_t t = 0; t < parameters_.size(); ++t) {
    tensors.push_back({parameters_[t].name, layout_.tensors[t].chunk, parameters_[t].trainable,
                       parameters_[t].backward_uses,
                       parameters_[t].separate_gradient || weights_stay()});
  }
  const uint32_t chunks = static_cast<uint32_t>(layout_.chunks.size());
  book_ = std::make_unique<GradientBook>(std::move(tensors), chunks);

  std::vector<Director::Chunk> directed;
  std::vector<uint64_t> bytes;
  for (uint32_t i = 0; i < book_->owners().size(); ++i) {
    const uint32_t owner = book_->owners()[i];
    const uint64_t chunk_bytes = layout_.chunks[owner].bytes();
    bytes.push_back(RoundUpToExtent(chunk_bytes));
    const bool is_gradient = i != owner;
    directed.push_back({.bytes = bytes.back(),
                        .is_gradient = is_gradient,
                        .stays = weights_stay() && !is_gradient,
                        .changes = layout_.chunks[owner].trainable,
                        .copied = options_.host_ranks != nullptr && !is_gradient});
  }
  director_ = std::make_unique<Director>(std::move(directed));
  placer_ =
      std::make_unique<Placer>(session_->arena_bytes(), kExtentAlignmentBytes, std::move(bytes));
  return absl::OkStatus();
}

absl::Status EngineImpl::AllocateGathered() {
  std::vector<ChunkSpec> specs;
  for (uint32_t i = 0; i < book_->owners().size(); ++i) {
    const uint32_t owner = book_->owners()[i];
    specs.push_back(
        {absl::StrCat(i == owner ? "weights of " : "gradient of ", NameOf(layout_, owner)),
         ChunkKind::kGatheredWeight, layout_.chunks[owner].bytes(),
         /*has_home=*/false});
  }
  absl::StatusOr<std::vector<ChunkHandle>> handles = session_->Allocate(specs);
  if (!handles.ok()) return handles.status();
  for (const ChunkHandle& handle : *handles) gathered_.push_back(handle.id);
  HostShards* const shards = links_->host_shards();
  return shards == nullptr ? absl::OkStatus() : shards->Allocate(session_, layout_);
}

absl::Status EngineImpl::MakeViews() {
  uint64_t bytes = 0;
  for (uint32_t owner : book_->owners()) {
    views_.push_back(bytes);
    bytes += RoundUpToExtent(layout_.chunks[owner].bytes());
  }
  return DeviceOf(*session_)->ReserveViews(bytes);
}

absl::Status EngineImpl::Remember(const absl::Status& status) {
  if (!status.ok() && status_.ok()) {
    status_ = status;
    published_.Fail(status);
    mover_->Fail(status);
    links_->Abort(std::string(status.message()));
  }
  return status;
}

// What the trainer told the other ranks itself, else the error that it stopped for.
std::string EngineImpl::WhyStopped() const {
  std::string why = "stopped in the middle of a step";
  const absl::Status told = links_->health();
  const absl::Status& cause = told.ok() ? refused_ : told;
  if (!cause.ok()) absl::StrAppend(&why, ": ", std::string(cause.message()));
  return why;
}

absl::Status EngineImpl::Health() {
  if (!status_.ok()) return status_;
  return Remember(mover_->status());
}

absl::Status EngineImpl::HealthOnDevice() {
  GEMINID_RETURN_IF_ERROR(Health());
  return wait_ended_;
}

}  // namespace geminid::zero
