// Allocates a StateStore's chunks, and finds each granule's place in them.
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "client/disk/striped_files.h"
#include "client/zero/state/state_store.h"

namespace geminid::zero {

StateStore::Extent StateStore::MakeExtent(const ExtentSlots& slots, const std::vector<ChunkId>& ids,
                                          Tier tier) const {
  Extent extent;
  extent.tier = tier;
  extent.form = slots.form;
  extent.weight = ids[slots.weight];
  if (!slots.trainable || slots.form.on_disk) return extent;
  if (slots.form.type == DataType::kBFloat16) extent.remainder = ids[slots.remainder];
  for (size_t i = 0; i < ArraysOf(slots.form, options_); ++i) {
    extent.arrays[i] = ids[slots.arrays[i]];
  }
  return extent;
}

absl::Status StateStore::Allocate() {
  disk_.count = options_.disk_count;
  if (disk_.count == nullptr) {
    GEMINID_ASSIGN_OR_RETURN(disk_.count, DiskCount::Create(&chunks_.session(), options_.resume));
  }
  if (options_.resume) GEMINID_RETURN_IF_ERROR(CheckOptimizer());
  if (options_.resume) GEMINID_RETURN_IF_ERROR(ClaimNoteOfDisk());
  StateList list = ListState(layout_, options_);
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids, ObtainChunks(&list));
  model_state_bytes_ = list.state_bytes();
  GEMINID_RETURN_IF_ERROR(ChargeDisk(list));
  GEMINID_RETURN_IF_ERROR(ObtainNotes());
  GEMINID_RETURN_IF_ERROR(MakeDisk(list, ids));
  if (options_.on_device) {
    if (previous_.claimed) GEMINID_RETURN_IF_ERROR(NoteWhatIsLeft(chunks_.HoldClaimed(ids)));
    if (!previous_.claimed) GEMINID_RETURN_IF_ERROR(chunks_.Place(ids, compute_->on_device()));
  }
  TakeExtents(list, ids);
  TakeGranules(list, ids);
  const Tier tier = options_.on_device ? kDevice : kHost;
  for (size_t i = 0; i < list.first_spare - list.first_tensor_state; ++i) {
    tensor_states_.chunks[i] = ids[list.first_tensor_state + i];
    tensor_states_.addresses[i] = Address(tensor_states_.chunks[i], tier);
  }
  for (size_t slot = list.first_staging; slot < ids.size(); ++slot) {
    gradients_.staging_chunks.push_back(ids[slot]);
    gradients_.staging.push_back(chunks_.session().Home(ids[slot]));
  }
  FindAddresses();
  return absl::OkStatus();
}

void StateStore::TakeExtents(const StateList& list, const std::vector<ChunkId>& ids) {
  const Tier tier = options_.on_device ? kDevice : kHost;
  for (const ExtentSlots& extent : list.extents) {
    extents_.push_back(MakeExtent(extent, ids, tier));
  }
  for (const ExtentSlots& spare : list.spares) {
    spare_[SpareOf(tier, spare.form)] = static_cast<uint32_t>(extents_.size());
    extents_.push_back(MakeExtent(spare, ids, tier));
  }
}

void StateStore::TakeGranules(const StateList& list, const std::vector<ChunkId>& ids) {
  gradients_.chunks.resize(layout_.granules, kNoChunk);
  if (!previous_.claimed) commit_->versions[layout_.granules].store(shm::ChunkVersion{}.Encode());
  for (const ChunkShape& chunk : layout_.chunks) {
    for (uint32_t i = chunk.first_granule; i < chunk.first_granule + chunk.granules; ++i) {
      current_[i].store(i);
      if (!previous_.claimed) commit_->versions[i].store(shm::ChunkVersion{0, i}.Encode());
      if (keeps_gradient(chunk)) gradients_.chunks[i] = ids[list.gradients[i]];
    }
  }
  const bool has_tensor_state = list.first_spare > list.first_tensor_state;
  commit_->header.groups = layout_.granules + (has_tensor_state ? 1 : 0);
  commit_->header.optimizer = OptimizerNumber();
}

// The files' bytes are this session's in the daemon's ledger before they are taken on the disk.
absl::Status StateStore::ChargeDisk(const StateList& list) {
  if (list.disk_bytes() == 0) return absl::OkStatus();
  for (const ChunkSpec& spec : list.DiskSpecs(options_.disk->disk.folders.size())) {
    if (previous_.claimed) {
      std::optional<std::vector<ChunkId>> charged;
      GEMINID_ASSIGN_OR_RETURN(charged, chunks_.Claim({spec}));
      if (charged.has_value()) continue;
    }
    GEMINID_RETURN_IF_ERROR(chunks_.Allocate({spec}).status());
  }
  return absl::OkStatus();
}

absl::Status StateStore::MakeDisk(const StateList& list, const std::vector<ChunkId>& ids) {
  if (list.first_staging == list.first_of_disk) {
    // Files of an earlier process of the run are of no use.
    if (options_.disk.has_value() && !previous_.claimed && !options_.disk->name.empty()) {
      disk::RemoveFiles(disk::PathsOfFiles(options_.disk->disk.folders, options_.disk->name),
                        /*identity=*/{});
    }
    return absl::OkStatus();
  }
  std::vector<std::byte*> homes;
  for (size_t i = list.first_of_disk; i < list.first_staging; ++i) {
    homes.push_back(chunks_.session().Home(ids[i]));
  }
  DiskStateOptions options = *options_.disk;
  options.spares = list.spares.size();
  options.written = &disk_.count->bytes();
  absl::StatusOr<std::unique_ptr<DiskState>> made =
      DiskState::Create(list.DiskShapes(), options, homes, previous_.claimed);
  if (!made.ok() && previous_.claimed) return NoteWhatIsLeft(made.status());
  if (!made.ok()) return made.status();
  disk_.state = *std::move(made);
  return absl::OkStatus();
}

}  // namespace geminid::zero
