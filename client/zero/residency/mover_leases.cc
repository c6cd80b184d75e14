// Which chunks operators hold on the device, and until when streams use them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "client/zero/residency/mover.h"

namespace geminid::zero {

// --- streams -------------------------------------------------------------------------------------

void Mover::Join(Stream* stream) {
  const std::lock_guard lock(mutex_);
  leases_.Join(stream);
}

std::optional<uint64_t> Mover::Mark(Stream* stream) {
  if (stream == nullptr) return std::nullopt;
  uint64_t point = 0;
  {
    const std::lock_guard lock(mutex_);
    point = leases_.AddPoint();
  }
  stream->CallBack(
      [guard = guard_, point] { guard->Run([point](Mover* mover) { mover->Reached(point); }); });
  return point;
}

void Mover::Reached(uint64_t point) {
  OperatorLeases::Requests requests;
  std::vector<uint32_t> leaving;
  {
    const std::lock_guard lock(mutex_);
    leaving = leases_.Reach(point, &requests);
    queue_.Reach(point);
  }
  WatchAll(std::move(requests));
  for (uint32_t chunk : leaving) ReleaseExtent(chunk);
  Changed();
}

std::set<uint64_t> Mover::MarkAll() {
  std::vector<Stream*> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = leases_.streams();
  }
  std::set<uint64_t> points;
  for (Stream* stream : streams) points.insert(*Mark(stream));
  return points;
}

void Mover::CloseUntilStreamsPass(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  std::set<uint64_t> points = MarkAll();
  const std::lock_guard lock(mutex_);
  std::erase_if(points, [this](uint64_t point) { return !leases_.IsOpen(point); });
  if (!points.empty()) queue_.Close(begin, end, std::move(points));
}

absl::Status Mover::Synchronize() {
  MarkAll();
  Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Await(
      &lock, [this] { return leases_.NoPointIsOpen(); }, "the work on the trainer's streams",
      nullptr));
  leases_.ForgetStreams();
  return absl::OkStatus();
}

bool Mover::StreamsPassed() const {
  const std::lock_guard lock(mutex_);
  return leases_.NoPointIsOpen() && !leases_.AnyGate();
}

// --- what operators hold -------------------------------------------------------------------------

void Mover::WatchAll(OperatorLeases::Requests requests) {
  for (Pending& request : requests) request.Then(Later());
}

absl::Status Mover::Hold(uint32_t chunk) {
  OperatorLeases::Requests requests;
  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    status_.Update(leases_.Hold(chunk, &requests));
    status = status_;
  }
  WatchAll(std::move(requests));
  return status;
}

void Mover::NoteUse(uint32_t chunk, std::optional<uint64_t> point) {
  const std::lock_guard lock(mutex_);
  if (point.has_value() && leases_.IsOpen(*point)) leases_.NoteUse(chunk, *point);
}

void Mover::Release(uint32_t chunk, ChunkState rest) {
  OperatorLeases::Requests requests;
  {
    const std::lock_guard lock(mutex_);
    leases_.Release(chunk, rest, &requests);
  }
  WatchAll(std::move(requests));
}

void Mover::Arrive(uint32_t chunk) {
  OperatorLeases::Requests requests;
  {
    const std::lock_guard lock(mutex_);
    queue_.Published(chunk);
    status_.Update(leases_.Arrive(chunk, &requests));
  }
  WatchAll(std::move(requests));
}

void Mover::Leave(uint32_t chunk) {
  {
    const std::lock_guard lock(mutex_);
    if (!leases_.Leave(chunk)) return;
  }
  ReleaseExtent(chunk);
}

void Mover::BecomeReduced(uint32_t chunk) {
  OperatorLeases::Requests requests;
  {
    const std::lock_guard lock(mutex_);
    leases_.BecomeReduced(chunk, &requests);
  }
  WatchAll(std::move(requests));
}

// --- waits of streams ----------------------------------------------------------------------------

absl::Status Mover::WaitOn(Stream* stream, uint32_t chunk) {
  std::shared_ptr<device::Gate> gate;
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok() || leases_.HasArrived(chunk)) return status_;
    gate = device().MakeGate();
    leases_.AddGate(chunk, gate);
  }
  changes_.signal.notify_all();
  stream->WaitFor(gate);
  return absl::OkStatus();
}

absl::Status Mover::WaitUnused(uint32_t chunk) {
  Lock lock(mutex_);
  return Await(
      &lock, [&] { return leases_.Unused(chunk); }, "the work that uses " + context_.names(chunk),
      nullptr);
}

// Streams continue without the chunks that they waited for. That must not end the process.
void Mover::OpenGates() {
  views_.KeepAll(/*fill=*/leases_.AnyGate());
  leases_.OpenGates();
}

// Called when the mover has nothing to do. Waits of streams have no deadline of their own.
void Mover::Rest(Lock* lock) {
  if (!leases_.AnyGate()) return changes_.signal.wait(*lock);
  const auto deadline = base::Deadline::In(timeout());
  if (changes_.signal.wait_until(*lock, deadline.time()) == std::cv_status::no_timeout) return;
  if (!leases_.AnyGate()) return;
  status_.Update(absl::DeadlineExceededError(
      absl::StrCat("no progress for ", absl::FormatDuration(timeout()),
                   " while a stream of this rank waited for ", context_.names(leases_.FirstGate()),
                   "; ", StandstillAdvice())));
  OpenGates();
}

}  // namespace geminid::zero
