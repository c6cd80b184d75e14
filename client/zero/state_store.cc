#include "client/zero/state_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/core/extent.h"
#include "client/zero/data_types.h"

namespace geminid::zero {
namespace {

// Of the optimizer's arrays, in order.
constexpr std::array<ChunkKind, kMaxStateArrays> kArrayKinds = {ChunkKind::kExpAvg,
                                                                ChunkKind::kExpAvgSq};

}  // namespace

StateStore::StateStore(Session* session, const Layout& layout, const StateStoreOptions& options)
    : layout_(layout),
      session_(session),
      options_(options),
      current_(layout.granules),
      chunk_on_device_(layout.chunks.size(), options.on_device) {}

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Create(Session* session,
                                                               const Layout& layout,
                                                               const StateStoreOptions& options) {
  std::unique_ptr<StateStore> store(new StateStore(session, layout, options));
  store->commit_ = CommitSegmentOf(*session);
  if (store->commit_ == nullptr) {
    return absl::FailedPreconditionError("the session has no commit segment");
  }
  // One version word for each granule, and one for the tensor state.
  if (layout.granules >= shm::kMaxChunks) {
    return absl::InvalidArgumentError(absl::StrCat("the model is cut into ", layout.granules,
                                                   " pieces, more than the ", shm::kMaxChunks,
                                                   " a session can track; use larger chunks"));
  }
  GEMINID_ASSIGN_OR_RETURN(store->compute_,
                           Compute::Create(DeviceOf(*session), "geminid-state", options.timeout));
  GEMINID_RETURN_IF_ERROR(store->Allocate(layout));
  if (store->claimed_ && store->left_.ok()) {
    GEMINID_RETURN_IF_ERROR(store->NoteWhatIsLeft(store->TakeUp()));
  }
  if (options.on_device && store->left_.ok()) {
    GEMINID_RETURN_IF_ERROR(store->MakeDeviceScales());
  }
  if (options.gradient_sums && store->left_.ok()) {
    GEMINID_RETURN_IF_ERROR(store->MakeGradientSums());
  }
  return store;
}

StateStore::ExtentSlots StateStore::AddExtent(const ChunkShape& chunk, bool spare, bool has_home,
                                              const std::string& name,
                                              std::vector<ChunkSpec>* specs) const {
  const uint64_t elements = chunk.granule_elements;
  const auto add = [&](ChunkKind kind, uint64_t bytes) {
    specs->push_back({name, spare ? ChunkKind::kSpare : kind, bytes, has_home});
    return specs->size() - 1;
  };
  ExtentSlots slots;
  slots.type = TypeOf(chunk);
  slots.trainable = chunk.trainable;
  slots.weight = add(ChunkKind::kWeight, chunk.granule_bytes());
  if (!slots.trainable) return slots;
  if (slots.type == DataType::kBFloat16) {
    slots.remainder = add(ChunkKind::kRemainder, elements * sizeof(int16_t));
  }
  for (size_t i = 0; i < options_.state_arrays; ++i) {
    slots.arrays[i] = add(kArrayKinds[i], elements * sizeof(float));
  }
  return slots;
}

// One for each type that anything is trained of.
std::vector<StateStore::ExtentSlots> StateStore::AddSpares(bool has_home, const std::string& name,
                                                           std::vector<ChunkSpec>* specs) const {
  std::vector<ExtentSlots> spares;
  for (const ChunkShape& chunk : layout_.chunks) {
    const bool there = std::ranges::any_of(
        spares, [&](const ExtentSlots& spare) { return spare.type == TypeOf(chunk); });
    if (chunk.trainable && !there) {
      spares.push_back(AddExtent(chunk, /*spare=*/true, has_home, name, specs));
    }
  }
  return spares;
}

StateStore::Extent StateStore::MakeExtent(const ExtentSlots& slots, const std::vector<ChunkId>& ids,
                                          Tier tier) const {
  Extent extent;
  extent.tier = tier;
  extent.type = slots.type;
  extent.weight = ids[slots.weight];
  if (!slots.trainable) return extent;
  if (slots.type == DataType::kBFloat16) extent.remainder = ids[slots.remainder];
  for (size_t i = 0; i < options_.state_arrays; ++i) extent.arrays[i] = ids[slots.arrays[i]];
  return extent;
}

absl::StatusOr<std::vector<ChunkId>> StateStore::AllocateChunks(
    const std::vector<ChunkSpec>& specs) {
  absl::StatusOr<std::vector<ChunkHandle>> handles = session_->Allocate(specs);
  if (!handles.ok()) return handles.status();
  std::vector<ChunkId> ids;
  for (const ChunkHandle& handle : *handles) {
    ids.push_back(handle.id);
    allocated_.push_back(handle.id);
    // Zeros are a payload: no chunk of the state is free storage.
    session_->Transition(handle.id, ChunkState::kHold);
  }
  return ids;
}

// One list of chunks, allocated together: the extents in order, the gradients, the staging area.
absl::Status StateStore::Allocate(const Layout& layout) {
  const bool has_home = !options_.on_device;
  const Tier tier = options_.on_device ? kDevice : kHost;
  std::vector<ChunkSpec> specs;
  std::vector<ExtentSlots> slots;
  std::vector<size_t> gradient_slots(layout.granules);
  uint32_t most_granules = 0;
  uint64_t most_bytes = 0;
  for (size_t c = 0; c < layout.chunks.size(); ++c) {
    const ChunkShape& chunk = layout.chunks[c];
    most_granules = std::max(most_granules, chunk.granules);
    most_bytes = std::max(most_bytes, chunk.granule_bytes());
    const uint64_t gradient_bytes =
        options_.accumulate ? chunk.granule_elements * sizeof(float) : chunk.granule_bytes();
    for (uint32_t g = 0; g < chunk.granules; ++g) {
      const std::string name = absl::StrCat(NameOf(layout, static_cast<uint32_t>(c)), ", part ", g);
      slots.push_back(AddExtent(chunk, /*spare=*/false, has_home, name, &specs));
      if (!chunk.trainable || options_.landing_places > 0) continue;
      gradient_slots[chunk.first_granule + g] = specs.size();
      specs.push_back({name, ChunkKind::kGradient, gradient_bytes, has_home});
    }
  }
  const size_t first_tensor_state = specs.size();
  const size_t tensor_states = options_.tensor_state_bytes > 0 ? tensor_states_.size() : 0;
  for (size_t i = 0; i < tensor_states; ++i) {
    specs.push_back({absl::StrCat("tensor state ", i),
                     i == 0 ? ChunkKind::kExpAvgSq : ChunkKind::kSpare, options_.tensor_state_bytes,
                     has_home});
  }
  for (const ChunkSpec& spec : specs) {
    if (spec.kind != ChunkKind::kGradient && spec.kind != ChunkKind::kSpare)
      model_state_bytes_ += spec.bytes;
  }
  const std::vector<ExtentSlots> spares = AddSpares(has_home, "spare", &specs);
  const size_t first_staging = specs.size();
  const uint32_t staged = options_.accumulate ? most_granules : options_.landing_places;
  for (uint32_t g = 0; has_home && g < staged; ++g) {
    specs.push_back({absl::StrCat("gradient staging ", g), ChunkKind::kGradient, most_bytes});
  }

  absl::StatusOr<std::vector<ChunkId>> ids = ObtainChunks(specs);
  if (!ids.ok()) return ids.status();
  GEMINID_RETURN_IF_ERROR(ObtainNotes());
  if (options_.on_device) {
    if (claimed_) GEMINID_RETURN_IF_ERROR(NoteWhatIsLeft(HoldClaimed(*ids)));
    if (!claimed_) GEMINID_RETURN_IF_ERROR(PlaceOnDevice(*ids));
  }
  for (const ExtentSlots& extent : slots) extents_.push_back(MakeExtent(extent, *ids, tier));
  for (const ExtentSlots& spare : spares) {
    spare_[SpareOf(tier, spare.type)] = static_cast<uint32_t>(extents_.size());
    extents_.push_back(MakeExtent(spare, *ids, tier));
  }
  gradient_chunks_.resize(layout.granules, kNoChunk);
  if (!claimed_) commit_->versions[layout.granules].store(shm::ChunkVersion{}.Encode());
  for (const ChunkShape& chunk : layout.chunks) {
    for (uint32_t i = chunk.first_granule; i < chunk.first_granule + chunk.granules; ++i) {
      current_[i].store(i);
      if (!claimed_) commit_->versions[i].store(shm::ChunkVersion{0, i}.Encode());
      if (!chunk.trainable || options_.landing_places > 0) continue;
      gradient_chunks_[i] = (*ids)[gradient_slots[i]];
    }
  }
  for (size_t i = 0; i < tensor_states; ++i) {
    tensor_state_chunks_[i] = (*ids)[first_tensor_state + i];
    tensor_states_[i] = Address(tensor_state_chunks_[i], tier);
  }
  for (size_t slot = first_staging; slot < ids->size(); ++slot) {
    staging_chunks_.push_back((*ids)[slot]);
    staging_.push_back(session_->Home((*ids)[slot]));
  }
  FindAddresses();
  commit_->header.groups = layout.granules + (tensor_states > 0 ? 1 : 0);
  return absl::OkStatus();
}

absl::Status StateStore::Free() {
  held_.clear();
  // Requests are carried out in order: copies that have ended are settled when this is done.
  GEMINID_RETURN_IF_ERROR(
      session_->ReserveWorkspace(0, /*may_evict=*/false).Wait(options_.timeout));
  return session_->Free(std::exchange(allocated_, {}));
}

absl::Status StateStore::PlaceOnDevice(const std::vector<ChunkId>& chunks) {
  for (ChunkId chunk : chunks) {
    // The daemon has the words for what does not fit.
    const bool fits = session_->Bytes(chunk) <= session_->arena_bytes() - device_bytes_;
    absl::Status status =
        session_->AllocateExtent(chunk, fits ? device_bytes_ : kAnyOffset, /*may_evict=*/true)
            .Wait(options_.timeout);
    if (status.ok()) {
      const ComputePlace& place = compute_->on_device();
      place.ops->Zero(*place.stream, session_->Device(chunk), session_->Bytes(chunk));
      status = place.Finish();
    }
    if (status.ok()) status = session_->Publish(chunk).Wait(options_.timeout);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("the model state does not fit the device arena of ",
                                       base::FormatBytes(session_->arena_bytes()), " after ",
                                       base::FormatBytes(device_bytes_),
                                       " of it; use more device memory, or placement auto with the "
                                       "optimizer state on the host: ",
                                       std::string(status.message())));
    }
    if (status = HoldOnDevice(chunk); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StateStore::HoldOnDevice(ChunkId chunk) {
  std::optional<Lease> lease = session_->TryLease(chunk);
  if (!lease.has_value()) {
    return absl::InternalError("a chunk just published on the device could not be leased");
  }
  held_.push_back({.chunk = chunk, .lease = std::move(lease)});
  device_bytes_ += RoundUpToExtent(session_->Bytes(chunk));
  return absl::OkStatus();
}

std::vector<ChunkId> StateStore::ChunksOf(uint32_t chunk) const {
  const ChunkShape& shape = layout_.chunks[chunk];
  std::vector<ChunkId> all;
  for (uint32_t g = shape.first_granule; g < shape.first_granule + shape.granules; ++g) {
    const Extent& extent = extents_[current_[g].load()];
    all.insert(all.end(), {extent.weight, extent.remainder, gradient_chunks_[g]});
    all.insert(all.end(), extent.arrays.begin(), extent.arrays.end());
  }
  std::erase(all, kNoChunk);
  return all;
}

uint64_t StateStore::device_bytes_of(uint32_t chunk) const {
  uint64_t bytes = 0;
  for (ChunkId part : ChunksOf(chunk)) bytes += RoundUpToExtent(session_->Bytes(part));
  return bytes;
}

uint64_t StateStore::device_spare_bytes() const {
  std::vector<ChunkSpec> specs;
  AddSpares(/*has_home=*/false, "", &specs);
  uint64_t bytes = RoundUpToExtent(options_.device_scale_bytes);
  for (const ChunkSpec& spec : specs) bytes += RoundUpToExtent(spec.bytes);
  return bytes;
}

absl::Status StateStore::MakeDeviceSpares() {
  std::vector<ChunkSpec> specs;
  const std::vector<ExtentSlots> spares = DeviceSpareSlots(&specs);
  absl::StatusOr<std::vector<ChunkId>> ids = AllocateChunks(specs);
  if (!ids.ok()) return ids.status();
  GEMINID_RETURN_IF_ERROR(PlaceOnDevice(*ids));
  for (const ExtentSlots& spare : spares) {
    spare_[SpareOf(kDevice, spare.type)] = static_cast<uint32_t>(extents_.size());
    extents_.push_back(MakeExtent(spare, *ids, kDevice));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ChunkId>> StateStore::MakePassing(const std::vector<ChunkSpec>& specs) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkId> ids, AllocateChunks(specs));
  GEMINID_RETURN_IF_ERROR(PlaceOnDevice(ids));
  for (auto held = held_.end() - static_cast<ptrdiff_t>(ids.size()); held != held_.end(); ++held) {
    held->keeps = false;
  }
  return ids;
}

absl::Status StateStore::MakeDeviceScales() {
  if (options_.device_scale_bytes == 0) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids,
                           MakePassing({{"scales of rows and columns", ChunkKind::kSpare,
                                         options_.device_scale_bytes, /*has_home=*/false}}));
  device_scales_ = reinterpret_cast<float*>(Address(ids.front(), kDevice));
  return absl::OkStatus();
}

absl::Status StateStore::MakeGradientSums() {
  const uint64_t before = device_bytes_;
  std::vector<ChunkSpec> specs;
  for (size_t c = 0; c < layout_.chunks.size(); ++c) {
    const ChunkShape& chunk = layout_.chunks[c];
    if (!chunk.trainable) continue;
    specs.push_back({absl::StrCat("gradients of ", NameOf(layout_, static_cast<uint32_t>(c))),
                     ChunkKind::kGradient, chunk.elements * sizeof(float), /*has_home=*/false});
  }
  const absl::StatusOr<std::vector<ChunkId>> ids = MakePassing(specs);
  if (!ids.ok()) {
    uint64_t bytes = 0;
    for (const ChunkSpec& spec : specs) bytes += spec.bytes;
    return absl::Status(
        ids.status().code(),
        absl::StrCat(
            "ZeRO's stage 1 keeps sums of gradients on the device, ", base::FormatBytes(bytes),
            "; use stage 2, or more device memory: ", std::string(ids.status().message())));
  }
  sum_bytes_ = device_bytes_ - before;
  auto next = ids->begin();
  for (const ChunkShape& chunk : layout_.chunks) {
    std::byte* const sum = chunk.trainable ? Address(*next++, kDevice) : nullptr;
    gradient_sums_.push_back(reinterpret_cast<float*>(sum));
  }
  return absl::OkStatus();
}

absl::Status StateStore::MoveToDevice(std::span<const uint32_t> chunks) {
  std::vector<ChunkId> moved;
  bool trained = false;
  for (uint32_t chunk : chunks) {
    const std::vector<ChunkId> parts = ChunksOf(chunk);
    moved.insert(moved.end(), parts.begin(), parts.end());
    trained |= layout_.chunks[chunk].trainable;
  }
  std::vector<Pending> copies;
  uint64_t offset = device_bytes_;
  for (ChunkId chunk : moved) {
    TransferSpec spec;
    spec.source = chunk;
    spec.destination = chunk;
    spec.bytes = session_->Bytes(chunk);
    spec.cause = TransferCause::kPrefetch;
    spec.allocate_destination = spec.may_evict = true;
    spec.device_offset = offset;
    spec.publish_when_done = true;
    copies.push_back(session_->Transfer(spec));
    offset += RoundUpToExtent(spec.bytes);
  }
  for (const Pending& copy : copies) {
    GEMINID_RETURN_IF_ERROR(copy.Wait(options_.timeout));
  }
  for (ChunkId chunk : moved) {
    GEMINID_RETURN_IF_ERROR(HoldOnDevice(chunk));
    // From now on the home is the older copy.
    session_->Transition(chunk, ChunkState::kCompute);
    session_->Transition(chunk, ChunkState::kHold, /*dirty=*/true);
  }
  if (trained) {
    GEMINID_RETURN_IF_ERROR(MakeDeviceSpares());
    GEMINID_RETURN_IF_ERROR(MakeDeviceScales());
  }
  for (uint32_t chunk : chunks) {
    const ChunkShape& shape = layout_.chunks[chunk];
    chunk_on_device_[chunk] = true;
    for (uint32_t g = shape.first_granule; g < shape.first_granule + shape.granules; ++g) {
      extents_[current_[g].load()].tier = kDevice;
    }
  }
  FindAddresses();
  return absl::OkStatus();
}

std::byte* StateStore::Address(ChunkId chunk, Tier tier) const {
  if (chunk == kNoChunk) return nullptr;
  return tier == kDevice ? session_->Device(chunk) : session_->Home(chunk);
}

void StateStore::FindAddresses() {
  views_.clear();
  for (const Extent& extent : extents_) {
    View view;
    view.type = extent.type;
    view.weight = Address(extent.weight, extent.tier);
    view.remainder = reinterpret_cast<int16_t*>(Address(extent.remainder, extent.tier));
    for (size_t i = 0; i < kMaxStateArrays; ++i) {
      view.arrays[i] = reinterpret_cast<float*>(Address(extent.arrays[i], extent.tier));
    }
    views_.push_back(view);
  }
  gradients_.clear();
  for (uint32_t granule = 0; granule < layout_.granules; ++granule) {
    gradients_.push_back(Address(gradient_chunks_[granule], TierOf(granule)));
  }
}

void StateStore::FlipTensorState(uint64_t epoch) {
  if (options_.tensor_state_bytes == 0) return;
  tensor_state_ = 1 - tensor_state_;
  commit_->versions[layout_.granules].store(shm::ChunkVersion{epoch, tensor_state_}.Encode(),
                                            std::memory_order_release);
}

absl::Status StateStore::ReadTensorState(std::span<std::byte> bytes) const {
  const ComputePlace& place = ComputeOfTensors();
  auto read = std::make_shared<std::vector<std::byte>>(bytes.size());
  place.ops->Copy(*place.stream, read->data(), TensorState(), bytes.size());
  place.Keep(read);
  GEMINID_RETURN_IF_ERROR(place.Finish());
  std::ranges::copy(*read, bytes.begin());
  return absl::OkStatus();
}

absl::Status StateStore::WriteTensorState(std::span<const std::byte> bytes) {
  return WriteTo(TensorState(), bytes);
}

absl::Status StateStore::WriteSpareTensorState(std::span<const std::byte> bytes) {
  return WriteTo(SpareTensorState(), bytes);
}

absl::Status StateStore::WriteTo(std::byte* tensor_state, std::span<const std::byte> bytes) {
  const ComputePlace& place = ComputeOfTensors();
  auto written = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  place.ops->Copy(*place.stream, tensor_state, written->data(), bytes.size());
  place.Keep(written);
  return place.Finish();
}

void StateStore::Flip(uint32_t granule, uint64_t epoch) {
  uint32_t& spare = spare_[SpareOf(granule)];
  commit_->versions[granule].store(shm::ChunkVersion{epoch, spare}.Encode(),
                                   std::memory_order_release);
  spare = current_[granule].exchange(spare);
}

}  // namespace geminid::zero
