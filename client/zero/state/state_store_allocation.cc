// What a StateStore allocates: one list of chunks, so that a successor finds the same one.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/state/state_store.h"

namespace geminid::zero {
namespace {

// Of the optimizer's arrays, in order.
constexpr std::array<ChunkKind, kMaxStateArrays> kArrayKinds = {ChunkKind::kExpAvg,
                                                                ChunkKind::kExpAvgSq};

}  // namespace

StateStore::ExtentSlots StateStore::AddExtent(const ChunkShape& chunk, bool spare, bool has_home,
                                              const std::string& name,
                                              std::vector<ChunkSpec>* specs) const {
  const uint64_t elements = chunk.granule_elements;
  const auto add = [&](ChunkKind kind, uint64_t bytes) {
    specs->push_back({name, spare ? ChunkKind::kSpare : kind, bytes, has_home});
    return specs->size() - 1;
  };
  ExtentSlots slots;
  slots.form = FormOf(chunk);
  slots.trainable = chunk.trainable;
  slots.weight = add(ChunkKind::kWeight, chunk.granule_bytes());
  slots.on_disk = DiskShapeOf(chunk).payload_bytes() > 0;
  if (!slots.trainable || slots.on_disk) return slots;
  if (chunk.type == DataType::kBFloat16) {
    slots.remainder = add(ChunkKind::kRemainder, elements * sizeof(int16_t));
  }
  for (size_t i = 0; i < ArraysOf(slots.form); ++i) {
    slots.arrays[i] = add(kArrayKinds[i], elements * SizeOf(options_.state_type));
  }
  return slots;
}

// One for each form that anything is trained of.
std::vector<StateStore::ExtentSlots> StateStore::AddSpares(bool has_home, const std::string& name,
                                                           std::vector<ChunkSpec>* specs) const {
  std::vector<ExtentSlots> spares;
  for (const ChunkShape& chunk : layout_.chunks) {
    const bool there = std::ranges::any_of(
        spares, [&](const ExtentSlots& spare) { return spare.form == FormOf(chunk); });
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
  extent.form = slots.form;
  extent.weight = ids[slots.weight];
  extent.on_disk = slots.on_disk;
  if (!slots.trainable || slots.on_disk) return extent;
  if (slots.form.type == DataType::kBFloat16) extent.remainder = ids[slots.remainder];
  for (size_t i = 0; i < ArraysOf(slots.form); ++i) extent.arrays[i] = ids[slots.arrays[i]];
  return extent;
}

// The extents in order, the gradients, numbers per tensor, spares, the disk's, the staging area.
StateStore::Wanted StateStore::ListChunks() const {
  Wanted wanted;
  AddGranules(&wanted);
  wanted.first_tensor_state = wanted.specs.size();
  for (size_t i = 0; options_.tensor_state_bytes > 0 && i < tensor_states_.addresses.size(); ++i) {
    wanted.specs.push_back({absl::StrCat("tensor state ", i),
                            i == 0 ? ChunkKind::kExpAvgSq : ChunkKind::kSpare,
                            options_.tensor_state_bytes, has_homes()});
  }
  wanted.first_spare = wanted.specs.size();
  wanted.spares = AddSpares(has_homes(), "spare", &wanted.specs);
  wanted.first_of_disk = wanted.specs.size();
  wanted.disk_bytes = AddDisk(&wanted.specs);
  wanted.first_staging = wanted.specs.size();
  AddStaging(&wanted.specs);
  return wanted;
}

void StateStore::AddGranules(Wanted* wanted) const {
  wanted->gradients.resize(layout_.granules);
  for (size_t c = 0; c < layout_.chunks.size(); ++c) {
    const ChunkShape& chunk = layout_.chunks[c];
    const uint64_t gradient_bytes =
        options_.accumulate ? chunk.granule_elements * sizeof(float) : chunk.granule_bytes();
    for (uint32_t g = 0; g < chunk.granules; ++g) {
      const std::string name =
          absl::StrCat(NameOf(layout_, static_cast<uint32_t>(c)), ", part ", g);
      wanted->extents.push_back(
          AddExtent(chunk, /*spare=*/false, has_homes(), name, &wanted->specs));
      if (!keeps_gradient(chunk)) continue;
      wanted->gradients[chunk.first_granule + g] = wanted->specs.size();
      wanted->specs.push_back({name, ChunkKind::kGradient, gradient_bytes, has_homes()});
    }
  }
}

void StateStore::AddStaging(std::vector<ChunkSpec>* specs) const {
  uint32_t most_granules = 0;
  uint64_t most_bytes = 0;
  for (const ChunkShape& chunk : layout_.chunks) {
    most_granules = std::max(most_granules, chunk.granules);
    most_bytes = std::max(most_bytes, chunk.granule_bytes());
  }
  const uint32_t staged = options_.accumulate ? most_granules : options_.landing_places;
  for (uint32_t g = 0; has_homes() && g < staged; ++g) {
    specs->push_back({absl::StrCat("gradient staging ", g), ChunkKind::kGradient, most_bytes});
  }
}

uint64_t StateStore::Wanted::state_bytes() const {
  uint64_t bytes = disk_bytes;
  for (size_t i = 0; i < first_spare; ++i) {
    const bool is_state = specs[i].kind != ChunkKind::kGradient && specs[i].kind != ChunkKind::kSpare;
    if (is_state) bytes += specs[i].bytes;
  }
  return bytes;
}

absl::Status StateStore::Allocate() {
  const Wanted wanted = ListChunks();
  model_state_bytes_ = wanted.state_bytes();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids, ObtainChunks(wanted.specs));
  GEMINID_RETURN_IF_ERROR(ObtainNotes());
  if (wanted.disk_bytes > 0) {
    GEMINID_RETURN_IF_ERROR(
        MakeDisk({ids.begin() + static_cast<ptrdiff_t>(wanted.first_of_disk),
                  ids.begin() + static_cast<ptrdiff_t>(wanted.first_staging)}));
  }
  if (options_.on_device) {
    if (left_.claimed) GEMINID_RETURN_IF_ERROR(NoteWhatIsLeft(HoldClaimed(ids)));
    if (!left_.claimed) GEMINID_RETURN_IF_ERROR(chunks_.Place(ids, compute_->on_device()));
  }
  TakeExtents(wanted, ids);
  TakeGranules(wanted, ids);
  const Tier tier = options_.on_device ? kDevice : kHost;
  for (size_t i = 0; i < wanted.first_spare - wanted.first_tensor_state; ++i) {
    tensor_states_.chunks[i] = ids[wanted.first_tensor_state + i];
    tensor_states_.addresses[i] = Address(tensor_states_.chunks[i], tier);
  }
  for (size_t slot = wanted.first_staging; slot < ids.size(); ++slot) {
    gradients_.staging_chunks.push_back(ids[slot]);
    gradients_.staging.push_back(chunks_.session().Home(ids[slot]));
  }
  FindAddresses();
  return absl::OkStatus();
}

void StateStore::TakeExtents(const Wanted& wanted, const std::vector<ChunkId>& ids) {
  const Tier tier = options_.on_device ? kDevice : kHost;
  for (const ExtentSlots& extent : wanted.extents) {
    extents_.push_back(MakeExtent(extent, ids, tier));
  }
  for (const ExtentSlots& spare : wanted.spares) {
    spare_[SpareOf(tier, spare.form)] = static_cast<uint32_t>(extents_.size());
    extents_.push_back(MakeExtent(spare, ids, tier));
  }
}

void StateStore::TakeGranules(const Wanted& wanted, const std::vector<ChunkId>& ids) {
  gradients_.chunks.resize(layout_.granules, kNoChunk);
  if (!left_.claimed) commit_->versions[layout_.granules].store(shm::ChunkVersion{}.Encode());
  for (const ChunkShape& chunk : layout_.chunks) {
    for (uint32_t i = chunk.first_granule; i < chunk.first_granule + chunk.granules; ++i) {
      current_[i].store(i);
      if (!left_.claimed) commit_->versions[i].store(shm::ChunkVersion{0, i}.Encode());
      if (keeps_gradient(chunk)) gradients_.chunks[i] = ids[wanted.gradients[i]];
    }
  }
  const bool has_tensor_state = wanted.first_spare > wanted.first_tensor_state;
  commit_->header.groups = layout_.granules + (has_tensor_state ? 1 : 0);
}

}  // namespace geminid::zero
