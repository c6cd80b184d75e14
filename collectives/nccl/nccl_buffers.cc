#include "collectives/nccl/nccl_buffers.h"

namespace geminid::collectives {

void NcclBuffers::Add(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  ranges_.push_back(memory);
  for (BufferUser* const user : users_) user->Register(memory);
}

void NcclBuffers::RemoveAll() {
  const std::lock_guard lock(mutex_);
  for (BufferUser* const user : users_) {
    for (const std::span<std::byte> memory : ranges_) user->Deregister(memory);
  }
  ranges_.clear();
}

bool NcclBuffers::Join(BufferUser* user) {
  const std::lock_guard lock(mutex_);
  users_.insert(user);
  bool all = true;
  for (const std::span<std::byte> memory : ranges_) all = user->Register(memory) && all;
  return all;
}

void NcclBuffers::Leave(BufferUser* user) {
  const std::lock_guard lock(mutex_);
  if (users_.erase(user) == 0) return;
  for (const std::span<std::byte> memory : ranges_) user->Deregister(memory);
}

}  // namespace geminid::collectives
