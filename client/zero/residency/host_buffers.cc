#include "client/zero/residency/host_buffers.h"

#include <algorithm>
#include <utility>

namespace geminid::zero {

absl::StatusOr<ChunkHandle> HostBuffers::Take(uint32_t chunk, uint64_t bytes) {
  if (const auto found = taken_.find(chunk); found != taken_.end()) return found->second;
  const auto fits = std::ranges::find_if(
      spare_, [bytes](const ChunkHandle& spare) { return spare.bytes == bytes; });
  if (fits != spare_.end()) {
    const ChunkHandle handle = *fits;
    spare_.erase(fits);
    taken_[chunk] = handle;
    return handle;
  }
  absl::StatusOr<std::vector<ChunkHandle>> handles =
      session_->Allocate({{"weights or gradients off the device", ChunkKind::kGeneric, bytes}});
  if (!handles.ok()) return handles.status();
  session_->Transition(handles->front().id, ChunkState::kHold);
  taken_[chunk] = handles->front();
  return handles->front();
}

void HostBuffers::GiveBack(uint32_t chunk) {
  const auto found = taken_.find(chunk);
  if (found == taken_.end()) return;
  spare_.push_back(found->second);
  taken_.erase(found);
}

absl::Status HostBuffers::Free(uint32_t chunk) {
  const ChunkHandle handle = taken_.at(chunk);
  taken_.erase(chunk);
  return session_->Free(std::vector<ChunkId>{handle.id});
}

std::vector<ChunkId> HostBuffers::All() const {
  std::vector<ChunkId> ids;
  for (const ChunkHandle& spare : spare_) ids.push_back(spare.id);
  for (const auto& [chunk, taken] : taken_) ids.push_back(taken.id);
  return ids;
}

absl::Status HostBuffers::FreeSpare() {
  if (spare_.empty()) return absl::OkStatus();
  std::vector<ChunkId> ids;
  for (const ChunkHandle& spare : std::exchange(spare_, {})) ids.push_back(spare.id);
  return session_->Free(ids);
}

}  // namespace geminid::zero
