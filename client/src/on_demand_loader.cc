#include "client/src/on_demand_loader.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "client/src/session_impl.h"
#include "client/src/wire.h"

namespace geminid {

bool OnDemandLoader::IsLoad(const TransferSpec& spec, uint64_t chunk_bytes) {
  return spec.source == spec.destination && spec.allocate_destination && spec.publish_when_done &&
         spec.bytes == chunk_bytes;
}

Pending OnDemandLoader::Load(const TransferSpec& spec) {
  return Pending(StartOrJoin(spec, /*may_join=*/false)->outcome);
}

// Registers the load, then starts it without the lock: its callbacks may run at once.
std::shared_ptr<OnDemandLoader::Loading> OnDemandLoader::StartOrJoin(const TransferSpec& spec,
                                                                     bool may_join) {
  auto load = std::make_shared<Loading>();
  load->outcome = transfers_->NewOutcome();
  {
    const std::lock_guard lock(mutex_);
    TidyLocked();
    const auto [under_way, is_new] = loads_.emplace(spec.source, load);
    if (!is_new && may_join) return under_way->second;
    under_way->second = load;
  }
  transfers_->Start(spec, load->outcome,
                    [load](shm::ErrorReason reason) { load->refusal.store(reason); });
  return load;
}

TransferSpec OnDemandLoader::WholeChunk(ChunkId chunk, TransferCause cause) const {
  TransferSpec spec;
  spec.source = spec.destination = chunk;
  spec.bytes = session_->Bytes(chunk);
  spec.priority = Priority::kUrgent;
  spec.cause = cause;
  return spec;
}

void OnDemandLoader::TidyLocked() {
  std::erase_if(loads_, [](const auto& load) { return load.second->outcome->ready(); });
}

absl::StatusOr<Lease> OnDemandLoader::Use(ChunkId chunk, absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::In(timeout);
  for (;;) {
    if (std::optional<Lease> lease = session_->TryLease(chunk)) return *std::move(lease);
    if (session_->Bytes(chunk) == 0) {
      return absl::NotFoundError(absl::StrCat("there is no chunk ", Index(chunk), " to use"));
    }
    if (session_->Home(chunk) == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("chunk ", Index(chunk),
                       " is not on the device and has no home to load it from; fill its extent and "
                       "publish it first"));
    }
    TransferSpec spec = WholeChunk(chunk, TransferCause::kDemand);
    spec.allocate_destination = spec.may_evict = spec.publish_when_done = true;
    const std::shared_ptr<Loading> load = StartOrJoin(spec, /*may_join=*/true);
    absl::Status status = load->outcome->Wait(absl::FromChrono(deadline.Left()));
    if (!load->outcome->ready()) return status;
    if (!status.ok()) status = AfterRefusal(chunk, *load, status, deadline);
    if (!status.ok()) return status;
    if (deadline.Passed()) {
      // Loaded, perhaps several times, and evicted each time before it could be held.
      return absl::DeadlineExceededError(absl::StrCat("chunk ", Index(chunk),
                                                      " could not be held on the device within ",
                                                      absl::FormatDuration(timeout)));
    }
  }
}

// OK: worth another try.
absl::Status OnDemandLoader::AfterRefusal(ChunkId chunk, const Loading& load,
                                          const absl::Status& status,
                                          const base::Deadline& deadline) {
  switch (load.refusal.load()) {
    case shm::ErrorReason::kAlreadyResident:
      // Another thread's load, or a cancelled eviction, came first.
      std::this_thread::yield();
      return absl::OkStatus();
    case shm::ErrorReason::kArenaFull: {
      const std::optional<ChunkId> dirty = TakeOldestDirty();
      if (!dirty.has_value()) return status;
      absl::Status written = WriteBack(*dirty).Wait(absl::FromChrono(deadline.Left()));
      // Its owner has freed the chunk, or dropped it from the device: there is room anyway.
      const bool gone = absl::IsNotFound(written) || absl::IsFailedPrecondition(written);
      return gone ? absl::OkStatus() : written;
    }
    default:
      if (session_->ResidencyOf(chunk) == Residency::kFilling) {
        (void)session_->Drop(chunk).Wait(absl::FromChrono(deadline.Left()));
      }
      return status;
  }
}

Pending OnDemandLoader::WriteBack(ChunkId chunk) {
  Forget(chunk);
  return transfers_->Start(WholeChunk(chunk, TransferCause::kWriteBack));
}

void OnDemandLoader::NoteDirtyRelease(ChunkId chunk) {
  const std::lock_guard lock(mutex_);
  dirty_.remove(chunk);
  dirty_.push_back(chunk);
  ++releasing_[chunk];
}

void OnDemandLoader::NoteReleased(ChunkId chunk) {
  const std::lock_guard lock(mutex_);
  const auto found = releasing_.find(chunk);
  if (found != releasing_.end() && --found->second == 0) releasing_.erase(found);
}

void OnDemandLoader::Forget(ChunkId chunk) {
  const std::lock_guard lock(mutex_);
  dirty_.remove(chunk);
}

// The oldest dirty chunk that nothing uses; used ones could not leave. Holds being given back count
// as given back, because the daemon executes later requests after that.
std::optional<ChunkId> OnDemandLoader::TakeOldestDirty() {
  const std::lock_guard lock(mutex_);
  for (auto at = dirty_.begin(); at != dirty_.end(); ++at) {
    const auto releasing = releasing_.find(*at);
    const uint32_t returned = releasing == releasing_.end() ? 0 : releasing->second;
    if (SessionImpl::Of(*session_).Holds(*at) > returned) continue;
    const ChunkId chunk = *at;
    dirty_.erase(at);
    return chunk;
  }
  return std::nullopt;
}

}  // namespace geminid
