#include "client/zero/state/state_store.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/core/extent.h"

namespace geminid::zero {

StateStore::StateStore(Session* session, const Layout& layout, const StateStoreOptions& options)
    : layout_(layout),
      options_(options),
      chunks_(session, options.timeout),
      current_(layout.granules) {}

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
    return absl::InvalidArgumentError(absl::StrCat("the model has ", layout.granules,
                                                   " granules, more than the ", shm::kMaxChunks,
                                                   " a session can track; use larger chunks"));
  }
  GEMINID_ASSIGN_OR_RETURN(store->compute_,
                           Compute::Create(DeviceOf(*session), "geminid-state", options.timeout));
  GEMINID_RETURN_IF_ERROR(store->Allocate());
  if (store->previous_.claimed && store->previous_.status.ok()) {
    GEMINID_RETURN_IF_ERROR(store->NoteWhatIsLeft(store->TakeUp()));
  }
  if ((options.on_device || store->any_streamed()) && store->previous_.status.ok()) {
    GEMINID_RETURN_IF_ERROR(store->MakeDeviceScales());
  }
  if (options.workspace_bytes > 0 && store->previous_.status.ok()) {
    GEMINID_RETURN_IF_ERROR(store->MakeWorkspace());
  }
  if (options.gradient_sums && store->previous_.status.ok()) {
    GEMINID_RETURN_IF_ERROR(store->MakeGradientSums());
  }
  return store;
}

// --- on disk -------------------------------------------------------------------------------------

GranuleOnDisk StateStore::OnDisk(uint32_t granule) const {
  const uint32_t extent = current_[granule].load();
  return {.granule = granule,
          .extent = extent,
          .epoch = shm::ChunkVersion::Decode(commit_->versions[granule].load()).epoch,
          .weight = extents_[extent].view.weight};
}

absl::Status StateStore::UseOnDisk(uint32_t granule, bool writes,
                                   const std::function<absl::Status(const StateView&)>& use) const {
  const absl::Status used = disk_.state->Use(OnDisk(granule), writes, use);
  NoteRead(used);
  return used;
}

size_t StateStore::chunks_on_disk() const {
  return static_cast<size_t>(std::ranges::count_if(
      layout_.chunks, [this](const ChunkShape& c) { return granule_on_disk(c.first_granule); }));
}

size_t StateStore::arrays_of(uint32_t granule) const {
  const Extent& extent = extents_[current_[granule].load()];
  if (!extent.form.on_disk) {
    return static_cast<size_t>(
        std::ranges::count_if(extent.arrays, [](ChunkId array) { return array != kNoChunk; }));
  }
  return ArraysOf(extent.form, options_);
}

absl::Status StateStore::Free() {
  SetResumable(false);  // before the state is freed
  if (disk_.state != nullptr) disk_.state->Remove();
  disk_.state.reset();  // frees the files' space, and the kernel lets go of the memory
  return chunks_.FreeAll();
}

std::vector<ChunkId> StateStore::ChunksOf(uint32_t chunk) const {
  const ChunkShape& shape = layout_.chunks[chunk];
  std::vector<ChunkId> all;
  for (uint32_t g = shape.first_granule; g < shape.first_granule + shape.granules; ++g) {
    const Extent& extent = extents_[current_[g].load()];
    all.insert(all.end(), {extent.weight, extent.remainder, gradients_.chunks[g]});
    all.insert(all.end(), extent.arrays.begin(), extent.arrays.end());
  }
  std::erase(all, kNoChunk);
  return all;
}

StateStore::ExtentChunks StateStore::ChunksIn(const Extent& extent) {
  ExtentChunks chunks = {extent.weight, extent.remainder};
  std::ranges::copy(extent.arrays, chunks.begin() + 2);
  return chunks;
}

uint64_t StateStore::device_bytes_of(uint32_t chunk) const {
  uint64_t bytes = 0;
  for (ChunkId part : ChunksOf(chunk)) bytes += RoundUpToExtent(chunks_.session().Bytes(part));
  return bytes;
}

uint64_t StateStore::device_spare_bytes() const {
  std::vector<ChunkSpec> specs;
  DeviceSpareSlots(&specs);
  uint64_t bytes =
      scratch_.device_scales == nullptr ? RoundUpToExtent(options_.device_scale_bytes) : 0;
  for (const ChunkSpec& spec : specs) bytes += RoundUpToExtent(spec.bytes);
  return bytes;
}

absl::Status StateStore::MakeDeviceSpares() {
  std::vector<ChunkSpec> specs;
  const std::vector<ExtentSlots> spares = DeviceSpareSlots(&specs);
  GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkId> ids, chunks_.Allocate(specs));
  GEMINID_RETURN_IF_ERROR(chunks_.Place(ids, compute_->on_device()));
  for (const ExtentSlots& spare : spares) {
    spare_[SpareOf(kDevice, spare.form)] = static_cast<uint32_t>(extents_.size());
    extents_.push_back(MakeExtent(spare, ids, kDevice));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ChunkId>> StateStore::MakePassing(const std::vector<ChunkSpec>& specs) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkId> ids, chunks_.Allocate(specs));
  GEMINID_RETURN_IF_ERROR(chunks_.Place(ids, compute_->on_device(), /*keeps=*/false));
  return ids;
}

absl::Status StateStore::MakeDeviceScales() {
  if (options_.device_scale_bytes == 0 || scratch_.device_scales != nullptr)
    return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids,
                           MakePassing({{"scales of rows and columns", ChunkKind::kSpare,
                                         options_.device_scale_bytes, /*has_home=*/false}}));
  scratch_.device_scales = reinterpret_cast<float*>(Address(ids.front(), kDevice));
  return absl::OkStatus();
}

absl::Status StateStore::MakeWorkspace() {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids,
                           chunks_.Allocate({{"workspace of the optimizer", ChunkKind::kSpare,
                                              options_.workspace_bytes}}));
  scratch_.workspace = {chunks_.session().Home(ids.front()), options_.workspace_bytes};
  return absl::OkStatus();
}

absl::Status StateStore::MakeGradientSums() {
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
  auto next = ids->begin();
  for (const ChunkShape& chunk : layout_.chunks) {
    std::byte* const sum = chunk.trainable ? Address(*next++, kDevice) : nullptr;
    gradients_.sums.push_back(reinterpret_cast<float*>(sum));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ChunkId>> StateStore::MakePlaces(const std::string& name, size_t count,
                                                            uint64_t bytes) {
  std::vector<ChunkSpec> specs;
  for (size_t i = 0; i < count; ++i) {
    specs.push_back({absl::StrCat(name, " ", i), ChunkKind::kGeneric, bytes, /*has_home=*/false});
  }
  GEMINID_ASSIGN_OR_RETURN(std::vector<ChunkId> ids, chunks_.Allocate(specs));
  GEMINID_RETURN_IF_ERROR(chunks_.PlaceOpen(ids));
  return ids;
}

absl::Status StateStore::MoveToDevice(std::span<const uint32_t> chunks) {
  std::vector<ChunkId> moved;
  bool trained = false;
  for (uint32_t chunk : chunks) {
    const std::vector<ChunkId> parts = ChunksOf(chunk);
    moved.insert(moved.end(), parts.begin(), parts.end());
    trained |= layout_.chunks[chunk].trainable;
  }
  GEMINID_RETURN_IF_ERROR(chunks_.MoveIn(moved));
  if (trained) {
    GEMINID_RETURN_IF_ERROR(MakeDeviceSpares());
    GEMINID_RETURN_IF_ERROR(MakeDeviceScales());
  }
  for (uint32_t chunk : chunks) {
    const ChunkShape& shape = layout_.chunks[chunk];
    for (uint32_t g = shape.first_granule; g < shape.first_granule + shape.granules; ++g) {
      extents_[current_[g].load()].tier = kDevice;
    }
  }
  FindAddresses();
  return absl::OkStatus();
}

std::byte* StateStore::Address(ChunkId chunk, Tier tier) const {
  if (chunk == kNoChunk) return nullptr;
  return tier == kDevice ? chunks_.session().Device(chunk) : chunks_.session().Home(chunk);
}

void StateStore::FindAddresses() {
  for (Extent& extent : extents_) {
    View& view = extent.view;
    view.type = extent.form.type;
    view.state_type = options_.state_type;
    view.weight = Address(extent.weight, extent.tier);
    view.remainder = reinterpret_cast<int16_t*>(Address(extent.remainder, extent.tier));
    for (size_t i = 0; i < kMaxStateArrays; ++i) {
      view.arrays[i] = Address(extent.arrays[i], extent.tier);
    }
  }
  gradients_.places.clear();
  for (uint32_t granule = 0; granule < layout_.granules; ++granule) {
    gradients_.places.push_back(Address(gradients_.chunks[granule], TierOf(granule)));
  }
}

// From now on state is read on the host.
void StateStore::StayOnHost() {
  const std::map<ChunkId, ChunkId> swap_chunk_of = chunks_.StayOnHost();
  const auto stay = [&](ChunkId* chunk) {
    if (const auto found = swap_chunk_of.find(*chunk); found != swap_chunk_of.end())
      *chunk = found->second;
  };
  for (Extent& extent : extents_) {
    extent.tier = kHost;
    stay(&extent.weight);
    stay(&extent.remainder);
    std::ranges::for_each(extent.arrays, [&](ChunkId& array) { stay(&array); });
  }
  std::ranges::for_each(gradients_.chunks, [&](ChunkId& chunk) { stay(&chunk); });
  for (size_t i = 0; i < tensor_states_.addresses.size(); ++i) {
    stay(&tensor_states_.chunks[i]);
    tensor_states_.addresses[i] = Address(tensor_states_.chunks[i], kHost);
  }
  scratch_.device_scales = nullptr;
  options_.streamed.clear();
  FindAddresses();
}

void StateStore::FlipTensorState(uint64_t epoch) {
  if (options_.tensor_state_bytes == 0) return;
  tensor_states_.current = 1 - tensor_states_.current;
  commit_->versions[layout_.granules].store(
      shm::ChunkVersion{epoch, tensor_states_.current}.Encode(), std::memory_order_release);
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
