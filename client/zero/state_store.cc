#include "client/zero/state_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/session_internal.h"
#include "client/zero/extent.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kMomentBytes = sizeof(float);
constexpr uint64_t kRemainderBytes = sizeof(int16_t);

}  // namespace

StateStore::StateStore(Session* session, const Layout& layout, const StateStoreOptions& options)
    : session_(session), options_(options), current_(layout.granules) {}

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Create(Session* session,
                                                               const Layout& layout,
                                                               const StateStoreOptions& options) {
  std::unique_ptr<StateStore> store(new StateStore(session, layout, options));
  store->commit_ = CommitSegmentOf(*session);
  if (store->commit_ == nullptr) {
    return absl::FailedPreconditionError("the session has no commit segment");
  }
  if (layout.granules > shm::kMaxChunks) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", layout.granules,
                                                   " granules, more than the ", shm::kMaxChunks,
                                                   " a session can track; use larger chunks"));
  }
  if (absl::Status status = store->Allocate(layout); !status.ok()) return status;
  return store;
}

// One list of chunks, allocated together: the extents in order, the gradients, the staging area.
absl::Status StateStore::Allocate(const Layout& layout) {
  const bool split = options_.data_type == DataType::kBFloat16;
  const uint64_t elements = layout.granule_elements;
  const uint64_t weight_bytes = elements * SizeOf(options_.data_type);
  std::vector<ChunkSpec> specs;
  const auto add = [&](ChunkKind kind, const std::string& name, uint64_t bytes) {
    specs.push_back({name, kind, bytes, /*has_home=*/!options_.on_device});
    return specs.size() - 1;
  };
  struct Slots {
    size_t weight, remainder, exp_avg, exp_avg_sq;
    bool trainable;
  };
  const auto add_extent = [&](bool trainable, bool spare, const std::string& name) {
    Slots slots{add(spare ? ChunkKind::kSpare : ChunkKind::kWeight, name, weight_bytes), 0, 0, 0,
                trainable};
    if (!trainable) return slots;
    if (split) {
      slots.remainder =
          add(spare ? ChunkKind::kSpare : ChunkKind::kRemainder, name, elements * kRemainderBytes);
    }
    slots.exp_avg =
        add(spare ? ChunkKind::kSpare : ChunkKind::kExpAvg, name, elements * kMomentBytes);
    slots.exp_avg_sq =
        add(spare ? ChunkKind::kSpare : ChunkKind::kExpAvgSq, name, elements * kMomentBytes);
    return slots;
  };

  std::vector<Slots> slots;
  std::vector<size_t> gradient_slots(layout.granules);
  std::vector<size_t> staging_slots;
  const uint64_t gradient_bytes = options_.accumulate ? elements * sizeof(float) : weight_bytes;
  uint32_t most_granules = 0;
  for (size_t c = 0; c < layout.chunks.size(); ++c) {
    const ChunkShape& chunk = layout.chunks[c];
    most_granules = std::max(most_granules, chunk.granules);
    for (uint32_t g = 0; g < chunk.granules; ++g) {
      const std::string name = absl::StrCat("chunk ", c, " granule ", g);
      slots.push_back(add_extent(chunk.trainable, /*spare=*/false, name));
      if (chunk.trainable) {
        gradient_slots[chunk.first_granule + g] = add(ChunkKind::kGradient, name, gradient_bytes);
      }
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].kind != ChunkKind::kGradient) model_state_bytes_ += specs[i].bytes;
  }
  slots.push_back(add_extent(/*trainable=*/true, /*spare=*/true, "spare"));
  if (options_.accumulate && !options_.on_device) {
    for (uint32_t g = 0; g < most_granules; ++g) {
      staging_slots.push_back(
          add(ChunkKind::kGradient, absl::StrCat("gradient staging ", g), weight_bytes));
    }
  }

  absl::StatusOr<std::vector<ChunkHandle>> handles = session_->Allocate(specs);
  if (!handles.ok()) return handles.status();
  std::vector<ChunkId> ids;
  for (const ChunkHandle& handle : *handles) {
    ids.push_back(handle.id);
    // Zeros are a payload: no chunk of the state is free storage.
    session_->Transition(handle.id, ChunkState::kHold);
  }
  if (options_.on_device) {
    if (absl::Status status = PlaceOnDevice(ids); !status.ok()) return status;
  }

  for (const Slots& slot : slots) {
    Extent extent;
    extent.weight = ids[slot.weight];
    if (slot.trainable) {
      if (split) extent.remainder = ids[slot.remainder];
      extent.exp_avg = ids[slot.exp_avg];
      extent.exp_avg_sq = ids[slot.exp_avg_sq];
    }
    extents_.push_back(extent);
  }
  spare_ = static_cast<uint32_t>(extents_.size() - 1);
  gradient_chunks_.resize(layout.granules, kNoChunk);
  for (const ChunkShape& chunk : layout.chunks) {
    for (uint32_t i = chunk.first_granule; i < chunk.first_granule + chunk.granules; ++i) {
      current_[i].store(i);
      commit_->versions[i].store(shm::ChunkVersion{0, i}.Encode());
      if (!chunk.trainable) continue;
      gradient_chunks_[i] = ids[gradient_slots[i]];
    }
  }
  for (size_t slot : staging_slots) {
    staging_chunks_.push_back(ids[slot]);
    staging_.push_back(session_->Home(ids[slot]));
  }
  FindAddresses();
  commit_->header.groups = layout.granules;
  return absl::OkStatus();
}

absl::Status StateStore::PlaceOnDevice(const std::vector<ChunkId>& chunks) {
  for (ChunkId chunk : chunks) {
    absl::Status status = session_->AllocateExtent(chunk, kAnyOffset, /*may_evict=*/false).Wait();
    if (status.ok()) {
      std::fill_n(session_->Device(chunk), session_->Bytes(chunk), std::byte{0});
      status = session_->Publish(chunk).Wait();
    }
    if (!status.ok()) {
      return absl::Status(
          status.code(),
          absl::StrCat("the model state does not fit the device arena of ", session_->arena_bytes(),
                       " bytes after ", device_bytes_,
                       " bytes of it; use a larger --device-memory, or placement auto: ",
                       std::string(status.message())));
    }
    if (status = HoldOnDevice(chunk); !status.ok()) return status;
  }
  on_device_ = true;
  return absl::OkStatus();
}

absl::Status StateStore::HoldOnDevice(ChunkId chunk) {
  std::optional<Lease> lease = session_->TryLease(chunk);
  if (!lease.has_value()) {
    return absl::InternalError("a chunk just published on the device could not be leased");
  }
  leases_.push_back(*std::move(lease));
  device_bytes_ += RoundUpToExtent(session_->Bytes(chunk));
  return absl::OkStatus();
}

std::vector<ChunkId> StateStore::Chunks() const {
  std::vector<ChunkId> chunks;
  for (const Extent& extent : extents_) {
    for (ChunkId chunk : {extent.weight, extent.remainder, extent.exp_avg, extent.exp_avg_sq}) {
      if (chunk != kNoChunk) chunks.push_back(chunk);
    }
  }
  for (ChunkId chunk : gradient_chunks_) {
    if (chunk != kNoChunk) chunks.push_back(chunk);
  }
  return chunks;
}

uint64_t StateStore::device_bytes_needed() const {
  uint64_t bytes = 0;
  for (ChunkId chunk : Chunks()) bytes += RoundUpToExtent(session_->Bytes(chunk));
  return bytes;
}

absl::Status StateStore::MoveToDevice() {
  const std::vector<ChunkId> chunks = Chunks();
  std::vector<Pending> copies;
  for (ChunkId chunk : chunks) {
    TransferSpec spec;
    spec.source = chunk;
    spec.destination = chunk;
    spec.bytes = session_->Bytes(chunk);
    spec.cause = TransferCause::kPrefetch;
    spec.allocate_destination = true;
    spec.publish_when_done = true;
    copies.push_back(session_->Transfer(spec));
  }
  for (const Pending& copy : copies) {
    if (absl::Status status = copy.Wait(); !status.ok()) return status;
  }
  for (ChunkId chunk : chunks) {
    if (absl::Status status = HoldOnDevice(chunk); !status.ok()) return status;
    // From now on the home is the older copy.
    session_->Transition(chunk, ChunkState::kCompute);
    session_->Transition(chunk, ChunkState::kHold, /*dirty=*/true);
  }
  on_device_ = true;
  FindAddresses();
  return absl::OkStatus();
}

std::byte* StateStore::Address(ChunkId chunk) const {
  if (chunk == kNoChunk) return nullptr;
  return on_device_ ? session_->Device(chunk) : session_->Home(chunk);
}

void StateStore::FindAddresses() {
  views_.clear();
  for (const Extent& extent : extents_) {
    View view;
    view.weight = Address(extent.weight);
    view.remainder = reinterpret_cast<int16_t*>(Address(extent.remainder));
    view.exp_avg = reinterpret_cast<float*>(Address(extent.exp_avg));
    view.exp_avg_sq = reinterpret_cast<float*>(Address(extent.exp_avg_sq));
    views_.push_back(view);
  }
  gradients_.clear();
  for (ChunkId chunk : gradient_chunks_) gradients_.push_back(Address(chunk));
}

void StateStore::Flip(uint32_t granule, uint64_t epoch) {
  const uint32_t newest = spare_;
  commit_->versions[granule].store(shm::ChunkVersion{epoch, newest}.Encode(),
                                   std::memory_order_release);
  spare_ = current_[granule].exchange(newest);
}

}  // namespace geminid::zero
