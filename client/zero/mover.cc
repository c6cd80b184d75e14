#include "client/zero/mover.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/core/extent.h"

namespace geminid::zero {
namespace {

// How often a wait is asked for its cause again.
constexpr std::chrono::milliseconds kStallSlice{20};

std::vector<uint64_t> ExtentBytes(const MoverContext& context) {
  std::vector<uint64_t> bytes;
  for (uint32_t owner : context.owners) {
    bytes.push_back(RoundUpToExtent(context.layout->chunks[owner].bytes()));
  }
  return bytes;
}

uint64_t LargestChunkBytes(const Layout& layout) {
  uint64_t largest = 0;
  for (const ChunkShape& chunk : layout.chunks) largest = std::max(largest, chunk.bytes());
  return largest;
}

}  // namespace

Mover::Mover(MoverContext context, std::unique_ptr<Compute> compute)
    : context_(std::move(context)),
      buffers_(context_.session),
      queue_(ExtentBytes(context_)),
      kept_(context_.gathered.size()),
      copies_pending_(context_.gathered.size()),
      squares_(context_.layout->granules),
      placed_(context_.gathered.size()),
      usages_(context_.gathered.size()),
      shown_(context_.views.size()),
      guard_(std::make_shared<Guard>()),
      compute_(std::move(compute)),
      exchange_(context_.session, compute_->on_device(), context_.communicator,
                LargestChunkBytes(*context_.layout)) {
  if (context_.host_shards != nullptr) {
    exchange_within_host_ = std::make_unique<HostExchange>(context_.session, compute_->on_device(),
                                                           &context_.host_shards->ranks(),
                                                           LargestChunkBytes(*context_.layout));
  }
  guard_->mover = this;
  free_places_.resize(context_.store->landing_places());
  std::iota(free_places_.begin(), free_places_.end(), 0u);
}

absl::StatusOr<std::unique_ptr<Mover>> Mover::Create(MoverContext context,
                                                     std::unique_ptr<Compute> compute) {
  std::unique_ptr<Mover> mover(new Mover(std::move(context), std::move(compute)));
  GEMINID_ASSIGN_OR_RETURN(mover->thread_, base::StartThread([raw = mover.get()] { raw->Loop(); }));
  return mover;
}

Mover::~Mover() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(guard_->mutex);
  guard_->mover = nullptr;
  OpenGates();
}

std::function<void(const absl::Status&)> Mover::Later(
    std::function<void(const absl::Status&)> act) {
  return [guard = guard_, act = std::move(act)](const absl::Status& status) {
    const std::lock_guard lock(guard->mutex);
    if (guard->mover == nullptr) return;
    if (!status.ok()) guard->mover->Fail(status);
    act(status);
    guard->mover->Changed();
  };
}

void Mover::After(const ComputePlace& place, std::function<absl::Status()> act) {
  // The stream is the mover's own, and ends with all of its work before it.
  place.stream->Enqueue([this, ops = place.ops, act = std::move(act)] {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    absl::Status status = ops->status();
    if (status.ok()) status = act();
    Notify(status);
  });
}

void Mover::Changed() {
  {
    std::lock_guard lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
  StartGathers();
}

// --- asking --------------------------------------------------------------------------------------

// Where the stream is, and not where the calls are, counts for deadlines: one that lies behind is
// taken for the next round's.
void Mover::BeginMoment(uint64_t moment, Stream* stream) {
  moment_ = static_cast<uint32_t>(moment);
  if (stream == nullptr) return context_.session->BeginMoment(moment);
  stream->Enqueue([guard = guard_, moment] {
    const std::lock_guard lock(guard->mutex);
    if (guard->mover != nullptr) guard->mover->context_.session->BeginMoment(moment);
  });
}

absl::Status Mover::Run(const Steps& steps, uint64_t operation, MicroBatchPosition position) {
  for (const Step& step : steps) {
    GEMINID_RETURN_IF_ERROR(RunStep(step, operation, position));
  }
  return absl::OkStatus();
}

absl::Status Mover::RunStep(const Step& step, uint64_t operation, MicroBatchPosition position) {
  switch (step.kind) {
    case Step::Kind::kGather:
      placed_[step.chunk] = step.offset;
      Ask(Task::Kind::kGather, step, operation, position);
      return absl::OkStatus();
    case Step::Kind::kGatherToHost: {
      const uint64_t bytes = context_.session->Bytes(context_.gathered[step.chunk]);
      const absl::StatusOr<ChunkHandle> buffer = buffers_.Take(step.chunk, bytes);
      if (!buffer.ok()) return buffer.status();
      {
        std::lock_guard lock(mutex_);
        kept_[step.chunk] = buffer->home;
      }
      Ask(Task::Kind::kGatherToHost, step, operation, position);
      return absl::OkStatus();
    }
    case Step::Kind::kOpen:
      placed_[step.chunk] = step.offset;
      Ask(Task::Kind::kOpen, step, operation, position);
      return absl::OkStatus();
    case Step::Kind::kReduce:
      Ask(Task::Kind::kReduce, step, operation, position);
      return absl::OkStatus();
    case Step::Kind::kDrop:
      Drop(step.chunk);
      return absl::OkStatus();
    case Step::Kind::kToHost:
      return ToHost(step.chunk);
    case Step::Kind::kToDevice:
      return ToDevice(step);
    case Step::Kind::kForget:
      return Forget(step.chunk);
    case Step::Kind::kReserve:
      return Reserve(step.offset);
  }
  return absl::InternalError("a step of no kind");
}

void Mover::Ask(Task::Kind kind, const Step& step, uint64_t operation,
                MicroBatchPosition position) {
  {
    std::lock_guard lock(mutex_);
    if (kind == Task::Kind::kGather || kind == Task::Kind::kOpen) ++usages_[step.chunk].asked;
    if (kind == Task::Kind::kReduce) EndStay(step.chunk);
    queue_.Add({.kind = kind,
                .chunk = step.chunk,
                .offset = step.offset,
                .ahead = step.due.has_value(),
                .moment = step.due.value_or(moment_),
                .operation = operation,
                .first = position.first,
                .last = position.last,
                .within_host = step.within_host});
  }
  changed_.notify_all();
  StartGathers();
}

void Mover::Drop(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    EndStay(chunk);
    if (!queue_.Drop(chunk)) {
      changed_.notify_all();
      return;
    }
  }
  Leave(chunk);
}

// Growing waits for what is on its way out; shrinking cannot fail, and is in the ring before any
// request for what it frees.
absl::Status Mover::Reserve(uint64_t bytes) {
  const bool grows = bytes > reserved_bytes_;
  const uint64_t end =
      context_.session->arena_bytes() / kExtentAlignmentBytes * kExtentAlignmentBytes;
  if (grows) {
    GEMINID_RETURN_IF_ERROR(WaitClear(end - bytes, end));
  } else {
    CloseUntilStreamsPass(end - reserved_bytes_, end - bytes);
  }
  Pending reserved = context_.session->ReserveWorkspace(bytes, /*may_evict=*/true);
  if (grows) {
    const absl::Time began = context_.clock();
    GEMINID_RETURN_IF_ERROR(reserved.Wait(context_.timeout));
    context_.session->AddStall(StallCause::kDaemon, context_.clock() - began);
  }
  reserved_bytes_ = bytes;
  return absl::OkStatus();
}

// --- waiting -------------------------------------------------------------------------------------

StallCause Mover::CauseOfWait(uint32_t chunk) const {
  switch (queue_.stage(chunk)) {
    case MoveQueue::Stage::kNone:
      return context_.weights_current(LayoutChunk(chunk)) ? StallCause::kSpace
                                                          : StallCause::kUpdate;
    case MoveQueue::Stage::kCopying:
      return StallCause::kCopy;
    default:
      return StallCause::kGather;
  }
}

// The trainer's thread waits until it is `ready`. What it waits for may change meanwhile, and a
// daemon that takes no requests at all is the cause of whatever does not come. The deadline is of
// standstill: whatever goes on may take its time.
absl::Status Mover::Await(Lock* lock, const std::function<bool()>& ready, const std::string& what,
                          const std::function<StallCause()>& cause) {
  absl::Time since = context_.clock();
  uint64_t seen = changes_;
  base::Deadline deadline = base::Deadline::In(context_.timeout);
  while (status_.ok() && !ready()) {
    const StallCause expected = cause ? cause() : StallCause::kDaemon;
    const RequestPace before = RequestPaceOf(*context_.session);
    changed_.wait_for(*lock, std::min<std::chrono::nanoseconds>(kStallSlice, deadline.Left()));
    const absl::Time now = context_.clock();
    const bool daemon_stands =
        before.taken != before.sent && RequestPaceOf(*context_.session).taken == before.taken;
    const StallCause stalled_by = daemon_stands ? StallCause::kDaemon : expected;
    if (cause || daemon_stands) context_.session->AddStall(stalled_by, now - since);
    since = now;
    if (changes_ != seen) {
      seen = changes_;
      deadline = base::Deadline::In(context_.timeout);
    } else if (deadline.Passed() && status_.ok() && !ready()) {
      return absl::DeadlineExceededError(
          absl::StrCat("nothing has happened for ", absl::FormatDuration(context_.timeout),
                       " while this rank waited for ", what, " (",
                       shm::Name(static_cast<shm::StallCause>(stalled_by)),
                       "); see whether the daemon and the device still answer"));
    }
  }
  return status_;
}

absl::Status Mover::WaitResident(uint32_t chunk) {
  Lock lock(mutex_);
  if (status_.ok() && queue_.Settled(chunk)) return absl::OkStatus();
  return Await(
      &lock, [&] { return queue_.Settled(chunk); }, context_.names(chunk) + " on the device",
      [&] { return CauseOfWait(chunk); });
}

absl::Status Mover::WaitIdle() {
  Lock lock(mutex_);
  return Await(
      &lock, [this] { return queue_.Idle() && adding_ == 0 && updating_ == 0; },
      "gathers and reductions under way", [] { return StallCause::kReduce; });
}

absl::Status Mover::WaitClear(uint64_t begin, uint64_t end) {
  Lock lock(mutex_);
  return Await(
      &lock, [&] { return queue_.Clear(begin, end); },
      absl::StrCat("chunks to leave bytes ", begin, " to ", end, " of the arena"),
      [] { return StallCause::kSpace; });
}

double Mover::GradientSquares() const {
  std::lock_guard lock(mutex_);
  double sum = 0;
  for (double square : squares_) sum += square;
  return sum;
}

std::optional<uint32_t> Mover::NotFinite() const {
  std::lock_guard lock(mutex_);
  for (uint32_t c = 0; c < context_.layout->chunks.size(); ++c) {
    if (!IsFiniteLocked(c)) return c;
  }
  return std::nullopt;
}

bool Mover::IsFiniteLocked(uint32_t chunk) const {
  const ChunkShape& shape = Shape(chunk);
  const auto first = squares_.begin() + shape.first_granule;
  return std::isfinite(std::accumulate(first, first + shape.granules, 0.0));
}

void Mover::ClearGradientSquares() {
  std::lock_guard lock(mutex_);
  std::fill(squares_.begin(), squares_.end(), 0.0);
}

double Mover::HostToDeviceBytesPerSecond() const {
  std::lock_guard lock(mutex_);
  return link_.BytesPerSecond();
}

void Mover::Notify(const absl::Status& status) {
  if (!status.ok()) return Fail(status);
  Changed();
}

void Mover::Fail(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    status_.Update(status);
    if (!status_.ok()) OpenGates();
  }
  changed_.notify_all();
}

absl::Status Mover::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

// --- the thread ----------------------------------------------------------------------------------

void Mover::Loop() {
  Lock lock(mutex_);
  while (!stop_ && status_.ok()) {
    const std::optional<Task> task = queue_.TakeFront(
        [this](uint32_t chunk) { return MayReduce(chunk); }, context_.weights_current);
    if (!task.has_value()) {
      // Nothing was ready a moment ago, and the lock was not given up since.
      Rest(&lock);
      continue;
    }
    lock.unlock();
    const absl::Status status = CarryOut(*task);
    if (!status.ok()) Fail(status);
    lock.lock();
  }
  OpenGates();
}

absl::Status Mover::CarryOut(const Task& task) {
  switch (task.kind) {
    case Task::Kind::kGather:
      return FinishGather(task);
    case Task::Kind::kGatherToHost:
      return GatherToHost(task);
    case Task::Kind::kOpen:
      Publish(task.chunk);
      return absl::OkStatus();
    case Task::Kind::kReduce:
      BecomeReduced(task.chunk);
      return RunReduce(task);
    case Task::Kind::kDrop:
      Leave(task.chunk);
      return absl::OkStatus();
  }
  return absl::InternalError("a task of no kind");
}

// The extent is LEAVING.
void Mover::ReleaseExtent(uint32_t chunk) {
  if (const absl::Status hidden = HideView(chunk); !hidden.ok()) return Fail(hidden);
  context_.session->Drop(context_.gathered[chunk])
      .Then(Later([this, chunk](const absl::Status& status) {
        if (!status.ok()) return;
        std::lock_guard lock(mutex_);
        queue_.Left(chunk);
        context_.meter->AddModel(-static_cast<int64_t>(queue_.bytes(chunk)));
      }));
}

// --- views ---------------------------------------------------------------------------------------

// When its contents are there: before, what has used it until now may go on in its old place.
absl::Status Mover::ShowView(uint32_t chunk) {
  if (context_.views.empty()) return absl::OkStatus();
  const auto offset = static_cast<uint64_t>(Extent(chunk) - context_.session->arena());
  const std::lock_guard lock(views_mutex_);
  shown_[chunk] = true;
  return context_.device->MapView(context_.views[chunk], offset, queue_.bytes(chunk));
}

absl::Status Mover::HideView(uint32_t chunk) {
  if (context_.views.empty()) return absl::OkStatus();
  const std::lock_guard lock(views_mutex_);
  if (views_kept_ || !shown_[chunk]) return absl::OkStatus();
  shown_[chunk] = false;
  return context_.device->UnmapView(context_.views[chunk], queue_.bytes(chunk));
}

// Streams go on without what they waited for. That must not end the process.
void Mover::KeepViews(bool fill) {
  const std::lock_guard lock(views_mutex_);
  views_kept_ = true;
  for (uint32_t chunk = 0; fill && chunk < context_.views.size(); ++chunk) {
    if (shown_[chunk]) continue;
    shown_[chunk] = context_.device->FillView(context_.views[chunk], queue_.bytes(chunk)).ok();
  }
}

// --- places --------------------------------------------------------------------------------------

uint64_t Mover::ShardOffset(uint32_t chunk) const {
  const ChunkShape& shape = Shape(chunk);
  return static_cast<uint64_t>(context_.communicator->Rank()) * shape.granules *
         shape.granule_bytes();
}

std::byte* Mover::Extent(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return context_.session->arena() + queue_.offset(chunk);
}

}  // namespace geminid::zero
