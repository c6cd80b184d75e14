#include "client/zero/state/disk_count.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/state/state_list.h"

namespace geminid::zero {

absl::StatusOr<std::shared_ptr<DiskCount>> DiskCount::Create(Session* session, bool resume) {
  std::shared_ptr<DiskCount> made(new DiskCount(session));
  if (!resume) return made;
  const auto handles = Claim(*session, {DiskCountSpec()});
  if (handles.ok()) made->Take(handles->front());
  if (!handles.ok() && !absl::IsNotFound(handles.status())) return handles.status();
  return made;
}

absl::Status DiskCount::Share() {
  if (chunk_.has_value()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkHandle> handles,
                           session_.Allocate({DiskCountSpec()}));
  session_.Transition(handles.front().id, ChunkState::kHold);
  Take(handles.front());
  bytes_->store(own_.load());
  return absl::OkStatus();
}

void DiskCount::Take(const ChunkHandle& handle) {
  chunk_ = handle.id;
  bytes_ = reinterpret_cast<std::atomic<uint64_t>*>(handle.home);
}

absl::Status DiskCount::Free() {
  bytes_ = &own_;
  const std::optional<ChunkId> chunk = std::exchange(chunk_, std::nullopt);
  return chunk.has_value() ? session_.Free(std::vector{*chunk}) : absl::OkStatus();
}

}  // namespace geminid::zero
