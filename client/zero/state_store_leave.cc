// State that lives on the device makes way for other jobs, and comes back.
#include <algorithm>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/state_store.h"

namespace geminid::zero {

absl::Status StateStore::PrepareToLeave() {
  std::vector<ChunkSpec> specs;
  for (Held& held : held_) {
    const bool has_home = session_->Home(held.chunk) != nullptr;
    held.refuge = has_home ? held.chunk : kNoChunk;
    if (has_home || !held.keeps) continue;
    specs.push_back({"preempted", ChunkKind::kGeneric, session_->Bytes(held.chunk)});
  }
  if (specs.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<ChunkId>> refuges = AllocateChunks(specs);
  if (!refuges.ok()) return refuges.status();
  auto next = refuges->begin();
  for (Held& held : held_) {
    if (held.refuge == kNoChunk && held.keeps) held.refuge = *next++;
  }
  return absl::OkStatus();
}

void StateStore::StayAfterAll() {
  std::vector<ChunkId> refuges;
  for (Held& held : held_) {
    if (held.refuge != kNoChunk && held.refuge != held.chunk) refuges.push_back(held.refuge);
    held.refuge = kNoChunk;
  }
  // Should it fail, they stay until the session ends.
  if (!session_->Free(refuges).ok()) return;
  std::erase_if(allocated_,
                [&](ChunkId chunk) { return std::ranges::find(refuges, chunk) != refuges.end(); });
}

absl::Status StateStore::LeaveDevice() {
  std::vector<Pending> done;
  for (const Held& held : held_) {
    if (!held.keeps) continue;
    done.push_back(session_->Transfer({.source = held.chunk,
                                       .destination = held.refuge,
                                       .bytes = session_->Bytes(held.chunk),
                                       .cause = TransferCause::kWriteBack}));
  }
  for (const Pending& copy : done) GEMINID_RETURN_IF_ERROR(copy.Wait(options_.timeout));
  done.clear();
  for (Held& held : held_) {
    held.offset = session_->DeviceOffset(held.chunk);
    held.lease.reset();
    done.push_back(session_->Drop(held.chunk));
  }
  for (const Pending& drop : done) GEMINID_RETURN_IF_ERROR(drop.Wait(options_.timeout));
  return absl::OkStatus();
}

void StateStore::StayOnHost() {
  std::map<ChunkId, ChunkId> refuge_of;
  for (const Held& held : held_) refuge_of[held.chunk] = held.refuge;
  const auto stay = [&](ChunkId* chunk) {
    if (const auto found = refuge_of.find(*chunk); found != refuge_of.end()) *chunk = found->second;
  };
  for (Extent& extent : extents_) {
    extent.tier = kHost;
    stay(&extent.weight);
    stay(&extent.remainder);
    std::ranges::for_each(extent.arrays, [&](ChunkId& array) { stay(&array); });
  }
  std::ranges::for_each(gradient_chunks_, [&](ChunkId& chunk) { stay(&chunk); });
  for (size_t i = 0; i < tensor_states_.size(); ++i) {
    stay(&tensor_state_chunks_[i]);
    tensor_states_[i] = Address(tensor_state_chunks_[i], kHost);
  }
  chunk_on_device_.assign(chunk_on_device_.size(), false);
  held_.clear();
  device_scales_ = nullptr;
  device_bytes_ = sum_bytes_ = 0;
  FindAddresses();
}

absl::Status StateStore::ReturnToDevice() {
  std::vector<Pending> done;
  for (const Held& held : held_) {
    if (!held.keeps) {
      done.push_back(session_->AllocateExtent(held.chunk, held.offset, /*may_evict=*/true));
      done.push_back(session_->Publish(held.chunk));
      continue;
    }
    done.push_back(session_->Transfer({.source = held.refuge,
                                       .destination = held.chunk,
                                       .bytes = session_->Bytes(held.chunk),
                                       .cause = TransferCause::kPrefetch,
                                       .allocate_destination = true,
                                       .device_offset = held.offset,
                                       .may_evict = true,
                                       .publish_when_done = true}));
  }
  for (const Pending& copy : done) GEMINID_RETURN_IF_ERROR(copy.Wait(options_.timeout));
  for (Held& held : held_) {
    held.lease = session_->TryLease(held.chunk);
    if (!held.lease.has_value()) {
      return absl::InternalError("a chunk just brought back to the device could not be leased");
    }
    if (held.refuge != held.chunk) continue;
    // From now on the home is the older copy.
    session_->Transition(held.chunk, ChunkState::kCompute);
    session_->Transition(held.chunk, ChunkState::kHold, /*dirty=*/true);
  }
  StayAfterAll();
  return absl::OkStatus();
}

}  // namespace geminid::zero
