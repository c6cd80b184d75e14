#include "client/zero/residency/mover.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/core/extent.h"

namespace geminid::zero {
namespace {

// The interval at which a wait asks for its cause again.
constexpr std::chrono::milliseconds kStallSlice{20};

std::vector<uint64_t> ExtentBytes(const MoverContext& context) {
  std::vector<uint64_t> bytes;
  for (uint32_t owner : *context.owners) {
    bytes.push_back(RoundUpToExtent(context.setup->layout.chunks[owner].bytes()));
  }
  return bytes;
}

}  // namespace

Mover::Mover(MoverContext context, std::unique_ptr<Compute> compute)
    : context_(std::move(context)),
      buffers_(&session()),
      queue_(ExtentBytes(context_)),
      leases_(&session(), context_.setup->gathered, context_.names),
      gradients_(context_.setup->layout, context_.store->landing_places()),
      views_(&device(), context_.setup->views, ExtentBytes(context_)),
      guard_(std::make_shared<CallbackGuard<Mover>>(this)),
      compute_(std::move(compute)),
      collectives_(*context_.setup, compute_->on_device(), context_.communicator,
                   context_.device_communicator, context_.host_shards) {}

absl::StatusOr<std::unique_ptr<Mover>> Mover::Create(MoverContext context) {
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<Compute> compute,
                           Compute::Create(DeviceOf(*context.setup->session), "geminid-moves",
                                           context.setup->options.timeout));
  std::unique_ptr<Mover> mover(new Mover(std::move(context), std::move(compute)));
  GEMINID_ASSIGN_OR_RETURN(mover->thread_, base::StartThread([raw = mover.get()] { raw->Loop(); }));
  return mover;
}

Mover::~Mover() {
  {
    std::lock_guard lock(mutex_);
    status_.Update(absl::CancelledError("the engine has ended"));
  }
  changes_.signal.notify_all();
  if (thread_.joinable()) thread_.join();
  guard_->End();
  OpenGates();
}

std::function<void(const absl::Status&)> Mover::Later(
    std::function<void(const absl::Status&)> act) {
  return [guard = guard_, act = std::move(act)](const absl::Status& status) {
    guard->Run([&](Mover* mover) {
      if (!status.ok()) mover->Fail(status);
      act(status);
      mover->Changed();
    });
  };
}

void Mover::After(const ComputePlace& place, std::function<absl::Status()> act) {
  // The stream belongs to the mover, and ends after all of its work and before the mover.
  place.stream->CallBack([this, ops = place.ops, act = std::move(act)] {
    if (!this->status().ok()) return;
    absl::Status status = ops->status();
    if (status.ok()) status = act();
    Notify(status);
  });
}

void Mover::Changed() {
  {
    std::lock_guard lock(mutex_);
    ++changes_.count;
  }
  changes_.signal.notify_all();
  StartGathers();
}

// --- requests -----------------------------------------------------------------------------------

// With a stream, the moment counts from when the stream gets there. A deadline that lies before the
// current moment would be taken for the next round's.
void Mover::BeginMoment(uint64_t moment, Stream* stream) {
  if (stream == nullptr) return session().BeginMoment(moment);
  stream->CallBack([guard = guard_, moment] {
    guard->Run([moment](Mover* mover) { mover->session().BeginMoment(moment); });
  });
}

absl::Status Mover::Run(const Steps& steps, const Purpose& purpose) {
  for (const Step& step : steps) GEMINID_RETURN_IF_ERROR(RunStep(step, purpose));
  return absl::OkStatus();
}

absl::Status Mover::RunStep(const Step& step, const Purpose& purpose) {
  switch (step.kind) {
    case Step::Kind::kGather:
      Ask(Task::Kind::kGather, step, purpose);
      return absl::OkStatus();
    case Step::Kind::kGatherToHost: {
      const uint64_t bytes = session().Bytes(context_.setup->gathered[step.chunk]);
      GEMINID_ASSIGN_OR_RETURN(const ChunkHandle buffer, buffers_.Take(step.chunk, bytes));
      Ask(Task::Kind::kGatherToHost, step, purpose, buffer.home);
      return absl::OkStatus();
    }
    case Step::Kind::kOpen:
      Ask(Task::Kind::kOpen, step, purpose);
      return absl::OkStatus();
    case Step::Kind::kReduce:
      Ask(Task::Kind::kReduce, step, purpose);
      return absl::OkStatus();
    case Step::Kind::kDrop:
      Drop(step.chunk);
      return absl::OkStatus();
    case Step::Kind::kToHost:
      return ToHost(step.chunk);
    case Step::Kind::kToDevice:
      return ToDevice(step, purpose);
    case Step::Kind::kForget:
      return Forget(step.chunk);
    case Step::Kind::kReserve:
      return Reserve(step.before, step.offset);
  }
  return absl::InternalError("a step of no kind");
}

void Mover::Ask(Task::Kind kind, const Step& step, const Purpose& purpose, std::byte* home) {
  {
    std::lock_guard lock(mutex_);
    if (kind == Task::Kind::kGather || kind == Task::Kind::kOpen) leases_.Ask(step.chunk);
    if (kind == Task::Kind::kReduce) leases_.EndForOperators(step.chunk);
    queue_.Add({.kind = kind,
                .chunk = step.chunk,
                .offset = step.offset,
                .ahead = step.due.has_value(),
                .moment = step.due.value_or(purpose.moment),
                .operation = purpose.operation,
                .first = purpose.position.first,
                .last = purpose.position.last,
                .within_host = step.within_host,
                .home = home});
  }
  changes_.signal.notify_all();
  StartGathers();
}

void Mover::Drop(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    leases_.EndForOperators(chunk);
    if (!queue_.Drop(chunk)) {
      changes_.signal.notify_all();
      return;
    }
  }
  Leave(chunk);
}

// Growing waits until the range is clear. Shrinking cannot fail, and enters the ring before any
// request for the room that it frees.
absl::Status Mover::Reserve(uint64_t before, uint64_t bytes) {
  const bool grows = bytes > before;
  const uint64_t end = session().arena_bytes() / kExtentAlignmentBytes * kExtentAlignmentBytes;
  if (grows) {
    GEMINID_RETURN_IF_ERROR(WaitClear(end - bytes, end));
  } else {
    CloseUntilStreamsPass(end - before, end - bytes);
  }
  Pending reserved = session().ReserveWorkspace(bytes, /*may_evict=*/true);
  if (grows) {
    const absl::Time began = context_.setup->clock();
    GEMINID_RETURN_IF_ERROR(reserved.Wait(timeout()));
    session().AddStall(StallCause::kDaemon, context_.setup->clock() - began);
  }
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

// Waits on the trainer's thread until `ready`. The cause of the wait may change meanwhile; if the
// daemon takes no requests at all, the daemon is the cause. The deadline limits standstill: it
// starts again whenever anything has changed.
absl::Status Mover::Await(Lock* lock, const std::function<bool()>& ready, const std::string& what,
                          const std::function<StallCause()>& cause) {
  absl::Time since = context_.setup->clock();
  uint64_t seen = changes_.count;
  base::Deadline deadline = base::Deadline::In(timeout());
  while (status_.ok() && !ready()) {
    const StallCause expected = cause ? cause() : StallCause::kDaemon;
    const RequestPace before = RequestPaceOf(session());
    changes_.signal.wait_for(*lock,
                             std::min<std::chrono::nanoseconds>(kStallSlice, deadline.Left()));
    const absl::Time now = context_.setup->clock();
    const bool daemon_stands =
        before.taken != before.sent && RequestPaceOf(session()).taken == before.taken;
    const StallCause stalled_by = daemon_stands ? StallCause::kDaemon : expected;
    if (cause || daemon_stands) session().AddStall(stalled_by, now - since);
    since = now;
    if (changes_.count != seen) {
      seen = changes_.count;
      deadline = base::Deadline::In(timeout());
    } else if (deadline.Passed() && status_.ok() && !ready()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no progress for ", absl::FormatDuration(timeout()), " while this rank waited for ", what,
          " (", shm::Name(static_cast<shm::StallCause>(stalled_by)), "); ", StandstillAdvice()));
    }
  }
  return status_;
}

// What a person looks at after nothing has happened.
std::string Mover::StandstillAdvice() const {
  const bool is_alone = context_.communicator->WorldSize() == 1;
  return absl::StrCat("see whether ",
                      is_alone ? "" : "all other ranks make the same calls in the same order, and ",
                      "the daemon and the device still answer");
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
      &lock, [this] { return queue_.Idle() && gradients_.NoneOnItsWay(); },
      "gathers and reductions in progress", [] { return StallCause::kReduce; });
}

absl::Status Mover::WaitClear(uint64_t begin, uint64_t end) {
  Lock lock(mutex_);
  return Await(
      &lock, [&] { return queue_.Clear(begin, end); },
      absl::StrCat("the eviction of chunks from bytes ", begin, " to ", end, " of the arena"),
      [] { return StallCause::kSpace; });
}

double Mover::GradientSquares() const {
  std::lock_guard lock(mutex_);
  return gradients_.Squares();
}

std::optional<uint32_t> Mover::NotFinite() const {
  std::lock_guard lock(mutex_);
  return gradients_.NotFinite();
}

void Mover::ClearGradientSquares() {
  std::lock_guard lock(mutex_);
  gradients_.ClearSquares();
}

void Mover::MeasureOwnGradients() {
  std::lock_guard lock(mutex_);
  gradients_.MeasureOwn();
}

bool Mover::measures_own_gradients() const {
  std::lock_guard lock(mutex_);
  return gradients_.measures_own();
}

double Mover::OwnGradientSquares() const {
  std::lock_guard lock(mutex_);
  return gradients_.OwnSquares();
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
  changes_.signal.notify_all();
}

absl::Status Mover::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

// --- the thread ----------------------------------------------------------------------------------

void Mover::Loop() {
  Lock lock(mutex_);
  while (status_.ok()) {
    const std::optional<Task> task = queue_.TakeFront(
        [this](uint32_t chunk) { return MayReduce(chunk); }, context_.weights_current);
    if (!task.has_value()) {
      // No task was ready a moment ago, and the lock was held since.
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

// The extent must be LEAVING.
void Mover::ReleaseExtent(uint32_t chunk) {
  if (const absl::Status hidden = views_.Hide(chunk); !hidden.ok()) return Fail(hidden);
  session()
      .Drop(context_.setup->gathered[chunk])
      .Then(Later([this, chunk](const absl::Status& status) {
        if (!status.ok()) return;
        std::lock_guard lock(mutex_);
        queue_.Left(chunk);
        context_.meter->AddModel(-static_cast<int64_t>(queue_.bytes(chunk)));
      }));
}

// --- places --------------------------------------------------------------------------------------

uint64_t Mover::ShardOffset(uint32_t chunk) const {
  const ChunkShape& shape = Shape(chunk);
  return static_cast<uint64_t>(context_.communicator->Rank()) * shape.granules *
         shape.granule_bytes();
}

std::byte* Mover::Extent(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return session().arena() + queue_.offset(chunk);
}

}  // namespace geminid::zero
