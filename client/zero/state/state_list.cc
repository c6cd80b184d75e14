#include "client/zero/state/state_list.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "proto/shm/limits.h"

namespace geminid::zero {
namespace {

// The kinds of the optimizer's arrays, in order.
constexpr std::array<ChunkKind, kMaxStateArrays> kArrayKinds = {ChunkKind::kExpAvg,
                                                                ChunkKind::kExpAvgSq};
constexpr uint64_t kHomeAlignment = 64;  // as Session::Allocate aligns homes
constexpr size_t kTensorStates = 2;      // versions of the numbers per tensor

// If the optimizer has no arrays, an fp32 chunk has nothing for the disk.
DiskShape DiskShapeOf(const ChunkShape& chunk, bool on_disk, const StateStoreOptions& options) {
  if (!on_disk || !chunk.trainable) return {};
  const DiskShape shape = {.elements = chunk.granule_elements,
                           .type = chunk.type,
                           .state_type = options.state_type,
                           .arrays = ArraysOf({chunk.type, chunk.whole, true}, options)};
  return shape.payload_bytes() > 0 ? shape : DiskShape{};
}

class Lister {
 public:
  Lister(const Layout& layout, const StateStoreOptions& options)
      : layout_(layout), options_(options) {}

  ExtentSlots AddExtent(uint32_t index, bool spare, bool has_home, const std::string& name,
                        std::vector<ChunkSpec>* specs) const {
    const ChunkShape& chunk = layout_.chunks[index];
    const uint64_t elements = chunk.granule_elements;
    const auto add = [&](ChunkKind kind, uint64_t bytes) {
      specs->push_back({name, spare ? ChunkKind::kSpare : kind, bytes, has_home});
      return specs->size() - 1;
    };
    ExtentSlots slots;
    slots.trainable = chunk.trainable;
    slots.disk = DiskOf(index);
    slots.form = FormOf(chunk, slots.disk.elements > 0);
    slots.weight = add(ChunkKind::kWeight, chunk.granule_bytes());
    if (!slots.trainable || slots.form.on_disk) return slots;
    if (chunk.type == DataType::kBFloat16) {
      slots.remainder = add(ChunkKind::kRemainder, elements * sizeof(int16_t));
    }
    for (size_t i = 0; i < ArraysOf(slots.form, options_); ++i) {
      slots.arrays[i] = add(kArrayKinds[i], elements * SizeOf(options_.state_type));
    }
    return slots;
  }

  std::vector<ExtentSlots> AddSpares(bool has_home, const std::string& name,
                                     std::vector<ChunkSpec>* specs) const {
    std::vector<ExtentSlots> spares;
    for (uint32_t c = 0; c < layout_.chunks.size(); ++c) {
      const StateForm form = FormOf(layout_.chunks[c], DiskOf(c).elements > 0);
      const bool there =
          std::ranges::any_of(spares, [&](const ExtentSlots& spare) { return spare.form == form; });
      if (!layout_.chunks[c].trainable || there || (form.on_disk && !has_home)) continue;
      spares.push_back(AddExtent(c, /*spare=*/true, has_home, name, specs));
    }
    return spares;
  }

  StateList List() const {
    StateList list;
    const bool has_homes = options_.has_homes();
    AddGranules(&list);
    list.first_tensor_state = list.specs.size();
    for (size_t i = 0; options_.tensor_state_bytes > 0 && i < kTensorStates; ++i) {
      list.specs.push_back({absl::StrCat("tensor state ", i),
                            i == 0 ? ChunkKind::kExpAvgSq : ChunkKind::kSpare,
                            options_.tensor_state_bytes, has_homes});
    }
    list.first_spare = list.specs.size();
    list.spares = AddSpares(has_homes, "spare", &list.specs);
    list.first_of_disk = list.specs.size();
    if (list.disk_bytes() > 0) {
      for (const uint64_t bytes : DiskMemoryBytes(list.DiskShapes())) {
        list.specs.push_back({"memory for state on disk", ChunkKind::kGeneric, bytes});
      }
    }
    list.first_staging = list.specs.size();
    AddStaging(&list.specs);
    return list;
  }

 private:
  DiskShape DiskOf(uint32_t chunk) const {
    const bool on_disk = !options_.on_disk.empty() && options_.on_disk[chunk];
    return DiskShapeOf(layout_.chunks[chunk], on_disk, options_);
  }

  void AddGranules(StateList* list) const {
    list->gradients.resize(layout_.granules);
    for (uint32_t c = 0; c < layout_.chunks.size(); ++c) {
      const ChunkShape& chunk = layout_.chunks[c];
      const bool keeps_gradient = chunk.trainable && options_.landing_places == 0;
      const uint64_t gradient_bytes =
          options_.accumulate ? chunk.granule_elements * sizeof(float) : chunk.granule_bytes();
      for (uint32_t g = 0; g < chunk.granules; ++g) {
        const std::string name = absl::StrCat(NameOf(layout_, c), ", part ", g);
        list->extents.push_back(
            AddExtent(c, /*spare=*/false, options_.has_homes(), name, &list->specs));
        if (!keeps_gradient) continue;
        list->gradients[chunk.first_granule + g] = list->specs.size();
        list->specs.push_back({name, ChunkKind::kGradient, gradient_bytes, options_.has_homes()});
      }
    }
  }

  void AddStaging(std::vector<ChunkSpec>* specs) const {
    uint32_t most_granules = 0;
    uint64_t most_bytes = 0;
    for (const ChunkShape& chunk : layout_.chunks) {
      most_granules = std::max(most_granules, chunk.granules);
      most_bytes = std::max(most_bytes, chunk.granule_bytes());
    }
    const uint32_t staged = options_.accumulate ? most_granules : options_.landing_places;
    for (uint32_t g = 0; options_.has_homes() && g < staged; ++g) {
      specs->push_back({absl::StrCat("gradient staging ", g), ChunkKind::kGradient, most_bytes});
    }
  }

  const Layout& layout_;
  const StateStoreOptions& options_;
};

}  // namespace

StateForm FormOf(const ChunkShape& chunk, bool on_disk) {
  return {chunk.type, chunk.whole, on_disk};
}

size_t ArraysOf(const StateForm& form, const StateStoreOptions& options) {
  return form.whole ? options.whole_state_arrays : options.state_arrays;
}

StateList ListState(const Layout& layout, const StateStoreOptions& options) {
  return Lister(layout, options).List();
}

std::vector<ExtentSlots> AddSpares(const Layout& layout, const StateStoreOptions& options,
                                   bool has_home, const std::string& name,
                                   std::vector<ChunkSpec>* specs) {
  return Lister(layout, options).AddSpares(has_home, name, specs);
}

std::vector<DiskShape> StateList::DiskShapes() const {
  std::vector<DiskShape> shapes;
  for (const ExtentSlots& extent : extents) shapes.push_back(extent.disk);
  for (const ExtentSlots& spare : spares) shapes.push_back(spare.disk);
  return shapes;
}

std::vector<ChunkSpec> StateList::DiskSpecs(size_t folders) const {
  std::vector<ChunkSpec> charges;
  for (uint64_t left = DiskFileBytes(DiskShapes(), folders); left > 0;) {
    const uint64_t bytes = std::min(left, shm::kMaxChunkBytes);
    charges.push_back({absl::StrCat("files of optimizer state ", charges.size()),
                       ChunkKind::kOnDisk, bytes, /*has_home=*/false});
    left -= bytes;
  }
  return charges;
}

uint64_t StateList::disk_bytes() const {
  uint64_t bytes = 0;
  for (const ExtentSlots& extent : extents) bytes += extent.disk.payload_bytes();
  return bytes;
}

uint64_t StateList::state_bytes() const {
  uint64_t bytes = disk_bytes();
  for (size_t i = 0; i < first_spare; ++i) {
    const bool is_state =
        specs[i].kind != ChunkKind::kGradient && specs[i].kind != ChunkKind::kSpare;
    if (is_state) bytes += specs[i].bytes;
  }
  return bytes;
}

uint64_t PoolBytes(const std::vector<ChunkSpec>& specs) {
  uint64_t bytes = 0;
  for (const ChunkSpec& spec : specs) {
    if (spec.has_home) bytes += base::RoundUp(spec.bytes, kHomeAlignment);
  }
  return base::RoundUpToPage(bytes);
}

uint64_t HostBytesOf(const Layout& layout, const StateStoreOptions& options) {
  uint64_t bytes = PoolBytes(ListState(layout, options).specs);
  if (options.NotesDisk())
    bytes += PoolBytes({NoteOfDiskSpec(layout)}) + PoolBytes({DiskCountSpec()});
  return bytes + base::RoundUpToPage(options.workspace_bytes);
}

ChunkSpec NoteOfDiskSpec(const Layout& layout) {
  return {"what is on disk", ChunkKind::kGeneric, layout.chunks.size()};
}

ChunkSpec DiskCountSpec() {
  return {"bytes written to disk", ChunkKind::kGeneric, sizeof(uint64_t)};
}

}  // namespace geminid::zero
