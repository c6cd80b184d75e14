#include "client/zero/basics/layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/pages.h"

namespace geminid::zero {
namespace {

// Tensors begin on boundaries of vector registers and cache lines.
constexpr uint64_t kTensorAlignmentBytes = 64;
// So many granules that one spare of each kind of state adds less than 2 % to the state.
constexpr uint64_t kWantedGranules = 64;
// The update of a smaller granule would consist mostly of overhead.
constexpr uint64_t kMinGranuleElements = 16384;
constexpr uint64_t kMaxGranulesPerShard = 16;
// The transfer of a smaller chunk would consist mostly of latency.
constexpr uint64_t kMinChunkElements = 65536;
constexpr uint64_t kSearchCandidates = 2048;

// Tensors that share chunks only with each other.
struct Group {
  bool trainable = true;
  std::optional<uint32_t> unit{};
  uint64_t elements = 0;  // includes padding for alignment
};

// The tensors of one type that are all whole, or all not. Kinds are packed independently.
struct Kind {
  DataType type = DataType::kBFloat16;
  bool whole = false;
  std::vector<uint32_t> members{};    // their indices among all tensors
  std::vector<TensorShape> shapes{};  // of the members
  std::vector<size_t> group_of{};     // by member
  // The first two have no unit: frozen, trained. They also take the units that are too small.
  std::vector<Group> groups = {{.trainable = false}, {.trainable = true}};
  uint64_t elements = 0;

  uint64_t alignment() const { return kTensorAlignmentBytes / SizeOf(type); }
  bool has_units() const { return groups.size() > 2; }
};

void AddMember(uint32_t tensor, const TensorShape& shape, Kind* kind) {
  size_t group = shape.trainable ? 1 : 0;
  if (shape.unit.has_value()) {
    const auto found = std::ranges::find_if(kind->groups, [&](const Group& other) {
      return other.unit == shape.unit && other.trainable == shape.trainable;
    });
    group = static_cast<size_t>(found - kind->groups.begin());
    if (found == kind->groups.end()) kind->groups.push_back({shape.trainable, shape.unit});
  }
  kind->groups[group].elements += base::RoundUp(shape.elements, kind->alignment());
  kind->members.push_back(tensor);
  kind->shapes.push_back(shape);
  kind->group_of.push_back(group);
  kind->elements += shape.elements;
}

std::vector<Kind> KindsOf(std::span<const TensorShape> tensors) {
  std::vector<Kind> kinds;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorShape& tensor = tensors[i];
    auto kind = std::ranges::find_if(kinds, [&](const Kind& other) {
      return other.type == tensor.type && other.whole == tensor.whole;
    });
    if (kind == kinds.end()) {
      kind = kinds.insert(kinds.end(), {.type = tensor.type, .whole = tensor.whole});
    }
    AddMember(i, tensors[i], &*kind);
  }
  return kinds;
}

// Packs one kind. A chunk that does not have the ordinary size is a multiple of `quantum`.
// `granule` is the size that no whole tensor exceeds.
class Packer {
 public:
  Packer(const Kind& kind, uint64_t chunk_elements, uint64_t quantum, uint64_t granule)
      : kind_(kind),
        chunk_elements_(chunk_elements),
        quantum_(quantum),
        granule_(granule),
        open_(kind.groups.size()) {}

  // Returns each member's place, and adds their chunks to `chunks`.
  std::vector<TensorPlace> Pack(std::vector<ChunkShape>* chunks) {
    std::vector<TensorPlace> places;
    for (size_t i = 0; i < kind_.members.size(); ++i) places.push_back(Place(i, chunks));
    for (size_t group = 0; group < open_.size(); ++group) {
      if (!kind_.groups[group].unit.has_value()) continue;
      for (const OpenChunk& open : open_[group]) {
        (*chunks)[open.chunk].elements = base::RoundUp(open.fill, quantum_);
      }
    }
    return places;
  }

 private:
  struct OpenChunk {
    uint32_t chunk = 0;
    uint64_t fill = 0;
  };

  TensorPlace Place(size_t member, std::vector<ChunkShape>* chunks) {
    const uint64_t elements = kind_.shapes[member].elements;
    const uint64_t aligned = base::RoundUp(elements, kind_.alignment());
    const bool trainable = kind_.shapes[member].trainable;
    if (aligned > chunk_elements_) {
      const uint32_t own = Add(base::RoundUp(aligned, quantum_), trainable, chunks);
      (*chunks)[own].used_elements = elements;
      return {own, 0};
    }
    OpenChunk& open = Find(member, aligned, chunks);
    const TensorPlace place{open.chunk, Begin(open.fill, aligned)};
    open.fill = place.offset + aligned;
    (*chunks)[open.chunk].used_elements += elements;
    return place;
  }

  // The offset of the next tensor in a chunk that is filled up to `fill`.
  uint64_t Begin(uint64_t fill, uint64_t aligned) const {
    if (!kind_.whole) return fill;
    const uint64_t left = granule_ - fill % granule_;
    return aligned <= left ? fill : fill + left;
  }

  // All chunks of a unit stay open, since small tensors between large ones would otherwise add
  // chunks. For tensors without a unit only the last chunk stays open.
  OpenChunk& Find(size_t member, uint64_t aligned, std::vector<ChunkShape>* chunks) {
    size_t group = kind_.group_of[member];
    if (kind_.groups[group].elements < quantum_) group = kind_.groups[group].trainable ? 1 : 0;
    std::vector<OpenChunk>& open = open_[group];
    for (OpenChunk& candidate : open) {
      if (Begin(candidate.fill, aligned) + aligned <= chunk_elements_) return candidate;
    }
    if (!kind_.groups[group].unit.has_value()) open.clear();
    open.push_back({Add(chunk_elements_, kind_.groups[group].trainable, chunks), 0});
    return open.back();
  }

  static uint32_t Add(uint64_t elements, bool trainable, std::vector<ChunkShape>* chunks) {
    chunks->emplace_back();
    chunks->back().elements = elements;
    chunks->back().trainable = trainable;
    return static_cast<uint32_t>(chunks->size() - 1);
  }

  const Kind& kind_;
  uint64_t chunk_elements_;
  uint64_t quantum_;
  uint64_t granule_;
  std::vector<std::vector<OpenChunk>> open_;  // by group
};

uint64_t PaddingOf(const Kind& kind, uint64_t chunk_elements, uint64_t quantum, uint64_t granule) {
  std::vector<ChunkShape> chunks;
  Packer(kind, chunk_elements, quantum, granule).Pack(&chunks);
  uint64_t total = 0;
  for (const ChunkShape& chunk : chunks) total += chunk.elements;
  return total - kind.elements;
}

// The largest tensor that is not an outlier; outliers get chunks of their own.
uint64_t LargestOrdinary(std::span<const TensorShape> tensors, uint64_t alignment) {
  double sum = 0;
  double squares = 0;
  for (const TensorShape& tensor : tensors) {
    const double elements = static_cast<double>(tensor.elements);
    sum += elements;
    squares += elements * elements;
  }
  const double count = static_cast<double>(tensors.size());
  const double mean = sum / count;
  const double limit = mean + 3 * std::sqrt(std::max(0.0, squares / count - mean * mean));
  uint64_t largest = 0;
  for (const TensorShape& tensor : tensors) {
    if (static_cast<double>(tensor.elements) <= limit) {
      largest = std::max(largest, base::RoundUp(tensor.elements, alignment));
    }
  }
  return largest;
}

uint64_t SearchChunkElements(const Kind& kind, uint64_t start, uint64_t shard_unit, uint64_t world,
                             uint64_t granules_per_shard) {
  const uint64_t first = base::RoundUp(start, shard_unit);
  const uint64_t step = base::RoundUp(std::max<uint64_t>(first / kSearchCandidates, 1), shard_unit);
  uint64_t best = first;
  uint64_t least = ~uint64_t{0};
  for (uint64_t candidate = first; candidate <= 2 * first; candidate += step) {
    const uint64_t quantum = candidate / granules_per_shard;
    const uint64_t padding = PaddingOf(kind, candidate, quantum, quantum / world);
    if (padding < least) {
      least = padding;
      best = candidate;
    }
  }
  return best;
}

absl::StatusOr<uint64_t> TotalElements(std::span<const TensorShape> tensors) {
  if (tensors.empty()) return absl::InvalidArgumentError("there are no parameters to lay out");
  uint64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].elements == 0 || tensors[i].elements > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", i, " has ", tensors[i].elements,
                                                     " elements; 1 to 2^40 are possible"));
    }
    total += tensors[i].elements;
  }
  if (total > kMaxElements) {
    return absl::InvalidArgumentError(
        absl::StrCat("the parameters have ", total, " elements; at most 2^40 are possible"));
  }
  return total;
}

// The sizes with which one kind is packed.
struct PackingSizes {
  uint64_t chunk_elements = 0;
  uint64_t granule_elements = 0;
};

// For whole tensors: one granule on each rank, at least as large as the largest tensor.
PackingSizes PackingSizesOfWhole(const Kind& kind, const LayoutOptions& options) {
  const uint64_t world = static_cast<uint64_t>(options.world_size);
  const uint64_t alignment = kind.alignment();
  uint64_t granule = std::max<uint64_t>(options.chunk_elements / world, 1);
  if (options.chunk_elements == 0) granule = std::max<uint64_t>(kMinChunkElements / world, 1);
  for (const TensorShape& tensor : kind.shapes) granule = std::max(granule, tensor.elements);
  const uint64_t start = world * base::RoundUp(granule, alignment);
  const uint64_t shard_unit = std::lcm(world * alignment, options.extent_bytes / SizeOf(kind.type));
  PackingSizes sizes;
  sizes.chunk_elements = options.chunk_elements != 0
                             ? base::RoundUp(start, shard_unit)
                             : SearchChunkElements(kind, start, shard_unit, world, 1);
  sizes.granule_elements = sizes.chunk_elements / world;
  return sizes;
}

// `alone`: there is no other kind. Then a given chunk size may exceed the size of all tensors.
PackingSizes PackingSizesOf(const Kind& kind, const LayoutOptions& options, bool alone) {
  if (kind.whole) return PackingSizesOfWhole(kind, options);
  const uint64_t world = static_cast<uint64_t>(options.world_size);
  const uint64_t alignment = kind.alignment();
  // A model smaller than one chunk gets one chunk.
  const uint64_t most = base::RoundUp(kind.elements, alignment) + kind.shapes.size() * alignment;
  uint64_t start = options.chunk_elements;
  if (start == 0) {
    start = std::max(LargestOrdinary(kind.shapes, alignment), kMinChunkElements);
  }
  if (options.chunk_elements == 0 || !alone) start = std::min(start, most);
  const uint64_t chunks_expected = std::max<uint64_t>(kind.elements / start, 1);
  const uint64_t most_granules =
      std::clamp<uint64_t>(start / world / kMinGranuleElements, 1, kMaxGranulesPerShard);
  // Chunks of units end at whole granules.
  const uint64_t per_shard =
      kind.has_units()
          ? most_granules
          : std::clamp<uint64_t>((kWantedGranules + chunks_expected - 1) / chunks_expected, 1,
                                 most_granules);
  const uint64_t shard_unit =
      std::lcm(world * per_shard * alignment, options.extent_bytes / SizeOf(kind.type));
  PackingSizes sizes;
  sizes.chunk_elements = options.chunk_elements != 0
                             ? base::RoundUp(start, shard_unit)
                             : SearchChunkElements(kind, start, shard_unit, world, per_shard);
  sizes.granule_elements = sizes.chunk_elements / world / per_shard;
  return sizes;
}

// Adds the kind's chunks after those of the kinds before.
void Pack(const Kind& kind, const PackingSizes& sizes, uint64_t world, Layout* layout) {
  const uint64_t quantum = sizes.granule_elements * world;
  const size_t first = layout->chunks.size();
  const std::vector<TensorPlace> places =
      Packer(kind, sizes.chunk_elements, quantum, sizes.granule_elements).Pack(&layout->chunks);
  for (size_t i = 0; i < places.size(); ++i) {
    layout->tensors[kind.members[i]] = places[i];
    layout->chunks[places[i].chunk].tensors.push_back(kind.members[i]);
  }
  for (size_t c = first; c < layout->chunks.size(); ++c) {
    ChunkShape& chunk = layout->chunks[c];
    chunk.type = kind.type;
    chunk.whole = kind.whole;
    chunk.granule_elements = sizes.granule_elements;
    chunk.first_granule = layout->granules;
    chunk.granules = static_cast<uint32_t>(chunk.elements / quantum);
    layout->granules += chunk.granules;
    layout->padding_elements += chunk.elements - chunk.used_elements;
  }
}

}  // namespace

absl::StatusOr<Layout> MakeLayout(std::span<const TensorShape> tensors,
                                  const LayoutOptions& options) {
  absl::StatusOr<uint64_t> total = TotalElements(tensors);
  if (!total.ok()) return total.status();
  if (options.world_size < 1) return absl::InvalidArgumentError("world_size must be at least 1");
  Layout layout;
  layout.tensors.resize(tensors.size());
  layout.used_elements = *total;
  const std::vector<Kind> kinds = KindsOf(tensors);
  uint64_t most = 0;
  for (const Kind& kind : kinds) {
    const PackingSizes sizes = PackingSizesOf(kind, options, kinds.size() == 1);
    Pack(kind, sizes, static_cast<uint64_t>(options.world_size), &layout);
    if (kind.elements <= most) continue;
    most = kind.elements;
    layout.chunk_elements = sizes.chunk_elements;
  }
  return layout;
}

void NameChunks(std::span<const std::string> tensors, Layout* layout) {
  // The daemon accepts 128 bytes, and the engine adds words before and after.
  constexpr size_t kMostBytes = 44;
  const auto end_of = [](std::string name) {
    if (name.size() > kMostBytes) name = absl::StrCat("..", name.substr(name.size() - kMostBytes));
    std::ranges::replace_if(
        name, [](char c) { return c < ' ' || c > '~'; }, '?');
    return name;
  };
  for (ChunkShape& chunk : layout->chunks) {
    chunk.name = end_of(tensors[chunk.tensors.front()]);
    if (chunk.tensors.size() == 1) continue;
    absl::StrAppend(&chunk.name, " to ", end_of(tensors[chunk.tensors.back()]));
  }
}

std::string NameOf(const Layout& layout, uint32_t chunk) {
  const std::string& name = layout.chunks[chunk].name;
  return name.empty() ? absl::StrCat("chunk ", chunk) : name;
}

}  // namespace geminid::zero
