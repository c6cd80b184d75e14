#include "client/zero/state/state_chunks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/crash_points.h"
#include "client/zero/core/extent.h"

namespace geminid::zero {

absl::StatusOr<std::vector<ChunkId>> StateChunks::Allocate(const std::vector<ChunkSpec>& specs) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkHandle> handles, session_.Allocate(specs));
  std::vector<ChunkId> ids;
  for (const ChunkHandle& handle : handles) {
    ids.push_back(handle.id);
    // Zeros are contents, so no chunk of the state counts as free storage.
    session_.Transition(handle.id, ChunkState::kHold);
  }
  all_.insert(all_.end(), ids.begin(), ids.end());
  return ids;
}

// Only NOT_FOUND means that there are no chunks. After another error this process does not know,
// and must not go on without the chunks and free them.
absl::StatusOr<std::optional<std::vector<ChunkId>>> StateChunks::Claim(
    const std::vector<ChunkSpec>& specs, std::string* missing) {
  const absl::StatusOr<std::vector<ChunkHandle>> handles = geminid::Claim(session_, specs);
  if (absl::IsNotFound(handles.status())) {
    if (missing != nullptr) *missing = std::string(handles.status().message());
    return std::nullopt;
  }
  if (!handles.ok()) return handles.status();
  std::vector<ChunkId> ids;
  for (const ChunkHandle& handle : *handles) ids.push_back(handle.id);
  all_.insert(all_.end(), ids.begin(), ids.end());
  return ids;
}

absl::Status StateChunks::Free(const std::vector<ChunkId>& chunks) {
  GEMINID_RETURN_IF_ERROR(session_.Free(chunks));
  std::erase_if(all_, [&](ChunkId chunk) { return std::ranges::count(chunks, chunk) > 0; });
  return absl::OkStatus();
}

absl::Status StateChunks::FreeAll() {
  held_.clear();
  GEMINID_RETURN_IF_ERROR(WaitSettled());
  return session_.Free(std::exchange(all_, {}));
}

absl::Status StateChunks::WaitSettled() {
  return session_.ReserveWorkspace(0, /*may_evict=*/false).Wait(timeout_);
}

// --- in the arena --------------------------------------------------------------------------------

absl::Status StateChunks::TakeExtent(ChunkId chunk) {
  // If the chunk does not fit, the daemon words the error.
  const bool fits = session_.Bytes(chunk) <= session_.arena_bytes() - device_bytes_;
  return session_.AllocateExtent(chunk, fits ? device_bytes_ : kAnyOffset, /*may_evict=*/true)
      .Wait(timeout_);
}

absl::Status StateChunks::Place(const std::vector<ChunkId>& chunks, const ComputePlace& place,
                                bool keeps) {
  for (ChunkId chunk : chunks) {
    absl::Status status = TakeExtent(chunk);
    if (status.ok()) {
      place.ops->Zero(*place.stream, session_.Device(chunk), session_.Bytes(chunk));
      status = place.Finish();
    }
    if (status.ok()) status = session_.Publish(chunk).Wait(timeout_);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("the model state does not fit the device arena of ",
                                       base::FormatBytes(session_.arena_bytes()), " after ",
                                       base::FormatBytes(device_bytes_),
                                       " of it; use more device memory, or placement auto with the "
                                       "optimizer state on the host: ",
                                       std::string(status.message())));
    }
    GEMINID_RETURN_IF_ERROR(Hold(chunk, keeps));
  }
  return absl::OkStatus();
}

absl::Status StateChunks::PlaceOpen(const std::vector<ChunkId>& chunks) {
  for (ChunkId chunk : chunks) {
    GEMINID_RETURN_IF_ERROR(TakeExtent(chunk));
    held_.push_back({.chunk = chunk, .keeps = false, .open = true});
    device_bytes_ += RoundUpToExtent(session_.Bytes(chunk));
  }
  return absl::OkStatus();
}

absl::Status StateChunks::Hold(ChunkId chunk, bool keeps) {
  std::optional<Lease> lease = session_.TryLease(chunk);
  if (!lease.has_value()) {
    return absl::InternalError("a chunk just published on the device could not be leased");
  }
  held_.push_back({.chunk = chunk, .lease = std::move(lease), .keeps = keeps});
  device_bytes_ += RoundUpToExtent(session_.Bytes(chunk));
  return absl::OkStatus();
}

absl::Status StateChunks::MoveIn(const std::vector<ChunkId>& chunks) {
  std::vector<Pending> copies;
  uint64_t offset = device_bytes_;
  for (ChunkId chunk : chunks) {
    TransferSpec spec;
    spec.source = chunk;
    spec.destination = chunk;
    spec.bytes = session_.Bytes(chunk);
    spec.cause = TransferCause::kPrefetch;
    spec.allocate_destination = spec.may_evict = true;
    spec.device_offset = offset;
    spec.publish_when_done = true;
    copies.push_back(session_.Transfer(spec));
    offset += RoundUpToExtent(spec.bytes);
  }
  for (const Pending& copy : copies) GEMINID_RETURN_IF_ERROR(copy.Wait(timeout_));
  for (ChunkId chunk : chunks) {
    GEMINID_RETURN_IF_ERROR(Hold(chunk));
    MakeHomeOlder(chunk);
  }
  return absl::OkStatus();
}

void StateChunks::MakeHomeOlder(ChunkId chunk) {
  session_.Transition(chunk, ChunkState::kCompute);
  session_.Transition(chunk, ChunkState::kHold, /*dirty=*/true);
}

std::map<ChunkId, ChunkId> StateChunks::StayOnHost() {
  std::map<ChunkId, ChunkId> swap_chunks;
  for (const ArenaChunk& held : held_) swap_chunks[held.chunk] = held.swap_chunk;
  held_.clear();
  device_bytes_ = 0;
  return swap_chunks;
}

// --- other jobs' turn ----------------------------------------------------------------------------

// The names are short, whatever those of the chunks are. The chunks' order is the same in each
// process of the run.
std::vector<ChunkSpec> StateChunks::SwapChunkSpecs(const std::vector<ChunkId>& chunks) const {
  std::vector<ChunkSpec> specs;
  for (const ChunkId chunk : chunks) {
    specs.push_back(
        {absl::StrCat("preempted ", specs.size()), ChunkKind::kGeneric, session_.Bytes(chunk)});
  }
  specs.push_back({"note of preempted chunks", ChunkKind::kGeneric, sizeof(uint64_t)});
  return specs;
}

void StateChunks::TakeSwapChunks(const std::vector<ChunkId>& chunks,
                                 std::vector<ChunkId> swap_chunks) {
  swap_chunks_.chunks = std::move(swap_chunks);
  for (size_t i = 0; i < chunks.size(); ++i) swap_chunks_.of[chunks[i]] = swap_chunks_.chunks[i];
}

// Not zero: the swap chunks are whole. Null: there are none.
std::atomic<uint64_t>* StateChunks::NoteOfSwapChunks() const {
  if (swap_chunks_.chunks.empty()) return nullptr;
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  return reinterpret_cast<std::atomic<uint64_t>*>(session_.Home(swap_chunks_.chunks.back()));
}

absl::Status StateChunks::PrepareToLeave() {
  GEMINID_RETURN_IF_ERROR(FreeSwapChunks());  // those that could not be freed before
  std::vector<ChunkId> without_home;
  for (const ArenaChunk& held : held_) {
    if (held.keeps && session_.Home(held.chunk) == nullptr) without_home.push_back(held.chunk);
  }
  if (!without_home.empty()) {
    GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkId> swap_chunks,
                             Allocate(SwapChunkSpecs(without_home)));
    TakeSwapChunks(without_home, std::move(swap_chunks));
  }
  for (ArenaChunk& held : held_) {
    const auto swap_chunk = swap_chunks_.of.find(held.chunk);
    const bool has_home = session_.Home(held.chunk) != nullptr;
    held.swap_chunk = has_home                              ? held.chunk
                      : swap_chunk != swap_chunks_.of.end() ? swap_chunk->second
                                                            : kNoChunk;
  }
  CrashPoint("refuges made");
  return absl::OkStatus();
}

void StateChunks::CancelLeave() {
  for (ArenaChunk& held : held_) held.swap_chunk = kNoChunk;
  FreeSwapChunks().IgnoreError();  // if this fails, the next PrepareToLeave repeats it
}

// The arena has newer contents from now on, even if the swap chunks cannot be freed.
absl::Status StateChunks::FreeSwapChunks() {
  if (swap_chunks_.chunks.empty()) return absl::OkStatus();
  NoteOfSwapChunks()->store(0, std::memory_order_release);
  CrashPoint("refuges spent");
  GEMINID_RETURN_IF_ERROR(Free(swap_chunks_.chunks));
  swap_chunks_ = {};
  return absl::OkStatus();
}

absl::Status StateChunks::Leave() {
  std::vector<Pending> done;
  for (const ArenaChunk& held : held_) {
    if (!held.keeps) continue;
    done.push_back(session_.Transfer({.source = held.chunk,
                                      .destination = held.swap_chunk,
                                      .bytes = session_.Bytes(held.chunk),
                                      .cause = TransferCause::kWriteBack}));
  }
  for (const Pending& copy : done) {
    GEMINID_RETURN_IF_ERROR(copy.Wait(timeout_));
    CrashPoint("chunk leaving");
  }
  if (std::atomic<uint64_t>* const note = NoteOfSwapChunks(); note != nullptr) {
    note->store(1, std::memory_order_release);
  }
  CrashPoint("refuges whole");
  done.clear();
  for (ArenaChunk& held : held_) {
    held.offset = session_.DeviceOffset(held.chunk);
    held.lease.reset();
    done.push_back(session_.Drop(held.chunk));
  }
  for (const Pending& drop : done) {
    GEMINID_RETURN_IF_ERROR(drop.Wait(timeout_));
    CrashPoint("chunk dropped");
  }
  return absl::OkStatus();
}

absl::Status StateChunks::Return() {
  std::vector<Pending> done;
  for (const ArenaChunk& held : held_) {
    if (!held.keeps) {
      done.push_back(session_.AllocateExtent(held.chunk, held.offset, /*may_evict=*/true));
      if (!held.open) done.push_back(session_.Publish(held.chunk));
      continue;
    }
    done.push_back(session_.Transfer({.source = held.swap_chunk,
                                      .destination = held.chunk,
                                      .bytes = session_.Bytes(held.chunk),
                                      .cause = TransferCause::kPrefetch,
                                      .allocate_destination = true,
                                      .device_offset = held.offset,
                                      .may_evict = true,
                                      .publish_when_done = true}));
  }
  for (const Pending& copy : done) {
    GEMINID_RETURN_IF_ERROR(copy.Wait(timeout_));
    CrashPoint("chunk returning");
  }
  for (ArenaChunk& held : held_) {
    if (held.open) continue;
    held.lease = session_.TryLease(held.chunk);
    if (!held.lease.has_value()) {
      return absl::InternalError("a chunk just brought back to the device could not be leased");
    }
    if (held.swap_chunk != held.chunk) continue;
    MakeHomeOlder(held.chunk);
  }
  CancelLeave();
  CrashPoint("state returned");
  return absl::OkStatus();
}

// --- what a previous process left ----------------------------------------------------------------

absl::Status StateChunks::ClaimSwapChunks(const std::vector<ChunkId>& chunks) {
  if (chunks.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(std::optional<std::vector<ChunkId>> swap_chunks,
                           Claim(SwapChunkSpecs(chunks)));
  if (swap_chunks.has_value()) TakeSwapChunks(chunks, *std::move(swap_chunks));
  return absl::OkStatus();
}

ChunkId StateChunks::ContentsOf(ChunkId chunk) const {
  if (session_.ResidencyOf(chunk) == geminid::Residency::kResident) return chunk;
  const std::atomic<uint64_t>* const note = NoteOfSwapChunks();
  const auto swap_chunk = swap_chunks_.of.find(chunk);
  if (note == nullptr || note->load(std::memory_order_acquire) == 0) return kNoChunk;
  return swap_chunk == swap_chunks_.of.end() ? kNoChunk : swap_chunk->second;
}

// Each chunk returns to the place that it had, since all of them lay one behind the other.
absl::Status StateChunks::HoldClaimed(const std::vector<ChunkId>& chunks) {
  std::vector<Pending> copies;
  uint64_t offset = device_bytes_;
  for (const ChunkId chunk : chunks) {
    const ChunkId contents = ContentsOf(chunk);
    if (contents == kNoChunk) {
      return absl::DataLossError(
          "some of the state was not on the device, which is its only place");
    }
    if (contents != chunk) {
      copies.push_back(session_.Transfer({.source = contents,
                                          .destination = chunk,
                                          .bytes = session_.Bytes(chunk),
                                          .cause = TransferCause::kPrefetch,
                                          .allocate_destination = true,
                                          .device_offset = offset,
                                          .may_evict = true,
                                          .publish_when_done = true}));
    }
    offset += RoundUpToExtent(session_.Bytes(chunk));
  }
  for (const Pending& copy : copies) {
    GEMINID_RETURN_IF_ERROR(copy.Wait(timeout_));
    CrashPoint("chunk brought back");
  }
  for (const ChunkId chunk : chunks) GEMINID_RETURN_IF_ERROR(Hold(chunk));
  return FreeSwapChunks();
}

}  // namespace geminid::zero
