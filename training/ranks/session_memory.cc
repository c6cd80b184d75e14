#include "training/ranks/session_memory.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {

SessionMemory::~SessionMemory() {
  std::vector<ChunkId> ids;
  for (const ChunkHandle& chunk : spare_) ids.push_back(chunk.id);
  session_.Free(ids).IgnoreError();  // of a session that has ended nothing is left
}

absl::StatusOr<collectives::Memory::Block> SessionMemory::Take(size_t bytes) {
  GEMINID_ASSIGN_OR_RETURN(const ChunkHandle chunk, Obtain(bytes));
  const auto give_back = [this](ChunkHandle* held) {
    GiveBack(*held);
    delete held;
  };
  std::unique_ptr<ChunkHandle, decltype(give_back)> held(new ChunkHandle(chunk), give_back);
  return Block(chunk.home, bytes, std::move(held));
}

absl::StatusOr<ChunkHandle> SessionMemory::Obtain(size_t bytes) {
  const std::lock_guard lock(mutex_);
  // The smallest that is large enough.
  std::ranges::sort(spare_, {}, &ChunkHandle::bytes);
  const auto fits = std::ranges::lower_bound(spare_, bytes, {}, &ChunkHandle::bytes);
  if (fits != spare_.end()) {
    const ChunkHandle chunk = *fits;
    spare_.erase(fits);
    return chunk;
  }
  if (!spare_.empty()) {
    GEMINID_RETURN_IF_ERROR(session_.Free(std::array{spare_.back().id}));
    spare_.pop_back();
  }
  GEMINID_ASSIGN_OR_RETURN(
      const std::vector<ChunkHandle> made,
      session_.Allocate({{"between ranks of the model", ChunkKind::kGeneric, bytes}}));
  return made.front();
}

void SessionMemory::GiveBack(const ChunkHandle& chunk) {
  const std::lock_guard lock(mutex_);
  spare_.push_back(chunk);
}

}  // namespace geminid::trainer
