// What operators hold on the device, and until when streams use it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "client/zero/mover.h"

namespace geminid::zero {

// --- streams -------------------------------------------------------------------------------------

void Mover::Join(Stream* stream) {
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
}

std::optional<uint64_t> Mover::Mark(Stream* stream) {
  if (stream == nullptr) return std::nullopt;
  uint64_t point = 0;
  {
    std::lock_guard lock(mutex_);
    point = next_point_++;
    open_points_.insert(point);
  }
  stream->Enqueue([guard = guard_, point] {
    const std::lock_guard lock(guard->mutex);
    if (guard->mover != nullptr) guard->mover->Reached(point);
  });
  return point;
}

void Mover::Reached(uint64_t point) {
  Requests requests;
  std::vector<uint32_t> leaving;
  {
    std::lock_guard lock(mutex_);
    open_points_.erase(point);
    for (uint32_t chunk = 0; chunk < usages_.size(); ++chunk) {
      std::deque<Stay>& stays = usages_[chunk].stays;
      for (Stay& stay : stays) {
        if (stay.points.erase(point) > 0) GiveBack(chunk, &stay, &requests);
      }
      if (stays.front().leaving && stays.front().points.empty()) {
        stays.pop_front();
        leaving.push_back(chunk);
      }
    }
    std::erase_if(closed_, [&](ClosedRange& range) {
      range.points.erase(point);
      if (range.points.empty()) queue_.Unblock(range.block);
      return range.points.empty();
    });
  }
  WatchAll(std::move(requests));
  for (uint32_t chunk : leaving) ReleaseExtent(chunk);
  Changed();
}

void Mover::CloseUntilStreamsPass(uint64_t begin, uint64_t end) {
  if (streams_.empty() || begin >= end) return;
  std::set<uint64_t> points;
  for (Stream* stream : streams_) points.insert(*Mark(stream));
  std::lock_guard lock(mutex_);
  std::erase_if(points, [this](uint64_t point) { return !open_points_.contains(point); });
  if (!points.empty()) closed_.push_back({queue_.Block(begin, end), std::move(points)});
}

absl::Status Mover::Synchronize() {
  for (Stream* stream : streams_) Mark(stream);
  {
    Lock lock(mutex_);
    GEMINID_RETURN_IF_ERROR(Await(
        &lock, [this] { return open_points_.empty(); }, "the work on the trainer's streams",
        nullptr));
  }
  streams_.clear();
  return absl::OkStatus();
}

bool Mover::StreamsPassed() const {
  std::lock_guard lock(mutex_);
  return open_points_.empty() && gates_.empty();
}

// --- what operators hold -------------------------------------------------------------------------

void Mover::WatchAll(Requests requests) {
  for (Pending& request : requests) Watch(std::move(request));
}

// By the legal steps of a chunk's life; a refusal is the mover's failure.
void Mover::Tell(uint32_t chunk, ChunkState to, Requests* requests) {
  ChunkState& told = usages_[chunk].told;
  const auto step = [&](ChunkState next) {
    requests->push_back(context_.session->Transition(context_.gathered[chunk], next));
    told = next;
  };
  if (told == to) return;
  if (to == ChunkState::kReadyForReduce && told != ChunkState::kHoldAfterBackward) {
    step(ChunkState::kCompute);
    step(ChunkState::kHoldAfterBackward);
  }
  step(to);
}

void Mover::Take(uint32_t chunk, Stay* stay, Requests* requests) {
  if (stay->lease.has_value()) return;
  stay->lease = context_.session->TryLease(context_.gathered[chunk]);
  if (!stay->lease.has_value()) {
    status_.Update(
        absl::InternalError(context_.names(chunk) + " is on the device but could not be leased"));
    return;
  }
  Tell(chunk, ChunkState::kCompute, requests);
}

void Mover::GiveBack(uint32_t chunk, Stay* stay, Requests* requests) {
  if (stay->held || !stay->points.empty() || !stay->lease.has_value()) return;
  stay->lease.reset();
  stay->begun = false;
  Tell(chunk, stay->rest, requests);
}

absl::Status Mover::Hold(uint32_t chunk) {
  Requests requests;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    Usage& usage = usages_[chunk];
    Stay& stay = usage.stays.back();
    stay.begun = stay.held = true;
    const bool there = usage.stays.size() == 1 && usage.arrived == usage.asked;
    if (there) Take(chunk, &stay, &requests);
    status = status_;
  }
  WatchAll(std::move(requests));
  return status;
}

void Mover::NoteUse(uint32_t chunk, std::optional<uint64_t> point) {
  std::lock_guard lock(mutex_);
  if (!point.has_value() || !open_points_.contains(*point)) return;
  usages_[chunk].stays.back().points.insert(*point);
}

void Mover::Release(uint32_t chunk, ChunkState rest) {
  Requests requests;
  {
    std::lock_guard lock(mutex_);
    Stay& stay = usages_[chunk].stays.back();
    stay.held = false;
    stay.rest = rest;
    GiveBack(chunk, &stay, &requests);
  }
  WatchAll(std::move(requests));
}

// From here on operators mean the next one.
void Mover::EndStay(uint32_t chunk) { usages_[chunk].stays.emplace_back(); }

void Mover::Arrive(uint32_t chunk) {
  Requests requests;
  {
    std::lock_guard lock(mutex_);
    queue_.Published(chunk);
    Usage& usage = usages_[chunk];
    ++usage.arrived;
    Stay& stay = usage.stays.front();
    if (stay.begun) Take(chunk, &stay, &requests);
    GiveBack(chunk, &stay, &requests);
    std::erase_if(gates_, [&](const ArrivalGate& gate) {
      if (gate.chunk != chunk || gate.arrival > usage.arrived) return false;
      gate.gate->Open();
      return true;
    });
  }
  WatchAll(std::move(requests));
}

void Mover::Leave(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    Stay& stay = usages_[chunk].stays.front();
    if (!stay.points.empty()) {
      stay.leaving = true;
      return;
    }
    usages_[chunk].stays.pop_front();
  }
  ReleaseExtent(chunk);
}

void Mover::BecomeReduced(uint32_t chunk) {
  Requests requests;
  {
    std::lock_guard lock(mutex_);
    Tell(chunk, ChunkState::kReadyForReduce, &requests);
    Tell(chunk, ChunkState::kHold, &requests);
    usages_[chunk].stays.pop_front();
  }
  WatchAll(std::move(requests));
}

// --- waits of streams ----------------------------------------------------------------------------

absl::Status Mover::WaitOn(Stream* stream, uint32_t chunk) {
  std::shared_ptr<device::Gate> gate;
  {
    std::lock_guard lock(mutex_);
    const Usage& usage = usages_[chunk];
    if (!status_.ok() || usage.arrived == usage.asked) return status_;
    gate = context_.device->MakeGate();
    gates_.push_back({chunk, usage.asked, gate});
  }
  changed_.notify_all();
  stream->WaitFor(gate);
  return absl::OkStatus();
}

absl::Status Mover::WaitUnused(uint32_t chunk) {
  Lock lock(mutex_);
  return Await(
      &lock, [&] { return usages_[chunk].stays.back().points.empty(); },
      "the work that uses " + context_.names(chunk), nullptr);
}

void Mover::OpenGates() {
  KeepViews(/*fill=*/!gates_.empty());
  for (const ArrivalGate& gate : std::exchange(gates_, {})) gate.gate->Open();
}

// The mover has nothing to do. Streams that wait have no deadline of their own.
void Mover::Rest(Lock* lock) {
  if (gates_.empty()) return changed_.wait(*lock);
  const auto deadline = base::Deadline::In(context_.timeout);
  if (changed_.wait_until(*lock, deadline.time()) == std::cv_status::no_timeout) return;
  if (gates_.empty()) return;
  status_.Update(absl::DeadlineExceededError(
      absl::StrCat("nothing has happened for ", absl::FormatDuration(context_.timeout),
                   " while a stream of this rank waited for ", context_.names(gates_.front().chunk),
                   "; see whether the daemon and the device still answer")));
  OpenGates();
}

}  // namespace geminid::zero
