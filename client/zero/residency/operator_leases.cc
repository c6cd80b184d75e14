#include "client/zero/residency/operator_leases.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::zero {

// Takes the legal steps of a chunk's states to `to`. If one is refused, the mover fails.
void OperatorLeases::Tell(uint32_t chunk, ChunkState to, Requests* requests) {
  ChunkState& told = usages_[chunk].told;
  const auto step = [&](ChunkState next) {
    requests->push_back(session_.Transition(chunks_[chunk], next));
    told = next;
  };
  if (told == to) return;
  if (to == ChunkState::kReadyForReduce && told != ChunkState::kHoldAfterBackward) {
    step(ChunkState::kCompute);
    step(ChunkState::kHoldAfterBackward);
  }
  step(to);
}

absl::Status OperatorLeases::Take(uint32_t chunk, Stay* stay, Requests* requests) {
  if (stay->lease.has_value()) return absl::OkStatus();
  stay->lease = session_.TryLease(chunks_[chunk]);
  if (!stay->lease.has_value()) {
    return absl::InternalError(
        absl::StrCat(names_(chunk), " is on the device but could not be leased"));
  }
  Tell(chunk, ChunkState::kCompute, requests);
  return absl::OkStatus();
}

void OperatorLeases::GiveBack(uint32_t chunk, Stay* stay, Requests* requests) {
  if (stay->held || !stay->points.empty() || !stay->lease.has_value()) return;
  stay->lease.reset();
  stay->begun = false;
  Tell(chunk, stay->rest, requests);
}

absl::Status OperatorLeases::Arrive(uint32_t chunk, Requests* requests) {
  Usage& usage = usages_[chunk];
  ++usage.arrived;
  Stay& stay = usage.stays.front();
  const absl::Status taken = stay.begun ? Take(chunk, &stay, requests) : absl::OkStatus();
  GiveBack(chunk, &stay, requests);
  std::erase_if(gates_, [&](const ArrivalGate& gate) {
    if (gate.chunk != chunk || gate.arrival > usage.arrived) return false;
    gate.gate->Open();
    return true;
  });
  return taken;
}

bool OperatorLeases::Leave(uint32_t chunk) {
  Stay& stay = usages_[chunk].stays.front();
  if (!stay.points.empty()) {
    stay.leaving = true;
    return false;
  }
  usages_[chunk].stays.pop_front();
  return true;
}

void OperatorLeases::BecomeReduced(uint32_t chunk, Requests* requests) {
  Tell(chunk, ChunkState::kReadyForReduce, requests);
  Tell(chunk, ChunkState::kHold, requests);
  usages_[chunk].stays.pop_front();
}

absl::Status OperatorLeases::Hold(uint32_t chunk, Requests* requests) {
  Usage& usage = usages_[chunk];
  Stay& stay = usage.stays.back();
  stay.begun = stay.held = true;
  const bool there = usage.stays.size() == 1 && HasArrived(chunk);
  return there ? Take(chunk, &stay, requests) : absl::OkStatus();
}

void OperatorLeases::Release(uint32_t chunk, ChunkState rest, Requests* requests) {
  Stay& stay = usages_[chunk].stays.back();
  stay.held = false;
  stay.rest = rest;
  GiveBack(chunk, &stay, requests);
}

void OperatorLeases::Join(Stream* stream) {
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
}

uint64_t OperatorLeases::AddPoint() {
  open_points_.insert(next_point_);
  return next_point_++;
}

std::vector<uint32_t> OperatorLeases::Reach(uint64_t point, Requests* requests) {
  std::vector<uint32_t> leaving;
  open_points_.erase(point);
  for (uint32_t chunk = 0; chunk < usages_.size(); ++chunk) {
    std::deque<Stay>& stays = usages_[chunk].stays;
    for (Stay& stay : stays) {
      if (stay.points.erase(point) > 0) GiveBack(chunk, &stay, requests);
    }
    if (stays.front().leaving && stays.front().points.empty()) {
      stays.pop_front();
      leaving.push_back(chunk);
    }
  }
  return leaving;
}

}  // namespace geminid::zero
