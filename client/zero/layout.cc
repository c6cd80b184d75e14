#include "client/zero/layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/pages.h"

namespace geminid::zero {
namespace {

// Tensors begin where a vector register and a cache line do.
constexpr uint64_t kTensorAlignmentBytes = 64;
// Enough granules that one spare of each kind of state costs under 2 % of the state.
constexpr uint64_t kWantedGranules = 64;
// A granule smaller than this spends its update on overhead.
constexpr uint64_t kMinGranuleElements = 16384;
constexpr uint64_t kMaxGranulesPerShard = 16;
// A chunk smaller than this spends its transfer on latency.
constexpr uint64_t kMinChunkElements = 65536;
constexpr uint64_t kSearchCandidates = 2048;
constexpr uint64_t kMaxElements = uint64_t{1} << 40;

// Packs tensors of one class; `quantum` is the unit in which a large tensor's own chunk grows.
class Packer {
 public:
  Packer(uint64_t chunk_elements, uint64_t quantum, uint64_t alignment)
      : chunk_elements_(chunk_elements), quantum_(quantum), alignment_(alignment) {}

  // The number of the chunk that takes the tensor, and its offset there.
  TensorPlace Place(uint64_t elements, std::vector<ChunkShape>* chunks, bool trainable) {
    OpenChunk& open = open_[trainable ? 1 : 0];
    const uint64_t aligned = base::RoundUp(elements, alignment_);
    if (aligned > chunk_elements_) {
      Add(base::RoundUp(aligned, quantum_), trainable, chunks);
      chunks->back().used_elements = elements;
      return {static_cast<uint32_t>(chunks->size() - 1), 0};
    }
    if (!open.exists || open.fill + aligned > chunk_elements_) {
      open = {true, static_cast<uint32_t>(chunks->size()), 0};
      Add(chunk_elements_, trainable, chunks);
    }
    const TensorPlace place{open.chunk, open.fill};
    open.fill += aligned;
    (*chunks)[open.chunk].used_elements += elements;
    return place;
  }

 private:
  struct OpenChunk {
    bool exists = false;
    uint32_t chunk = 0;
    uint64_t fill = 0;
  };

  static void Add(uint64_t elements, bool trainable, std::vector<ChunkShape>* chunks) {
    chunks->emplace_back();
    chunks->back().elements = elements;
    chunks->back().trainable = trainable;
  }

  uint64_t chunk_elements_;
  uint64_t quantum_;
  uint64_t alignment_;
  std::array<OpenChunk, 2> open_;  // of frozen tensors, of trained ones
};

uint64_t PaddingOf(std::span<const TensorShape> tensors, uint64_t chunk_elements, uint64_t quantum,
                   uint64_t alignment) {
  Packer packer(chunk_elements, quantum, alignment);
  std::vector<ChunkShape> chunks;
  uint64_t used = 0;
  for (const TensorShape& tensor : tensors) {
    packer.Place(tensor.elements, &chunks, tensor.trainable);
    used += tensor.elements;
  }
  uint64_t total = 0;
  for (const ChunkShape& chunk : chunks) total += chunk.elements;
  return total - used;
}

// The largest tensor that is not an outlier: those have chunks of their own.
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

uint64_t SearchChunkElements(std::span<const TensorShape> tensors, uint64_t start,
                             uint64_t shard_unit, uint64_t granules_per_shard, uint64_t alignment) {
  const uint64_t first = base::RoundUp(start, shard_unit);
  const uint64_t step = base::RoundUp(std::max<uint64_t>(first / kSearchCandidates, 1), shard_unit);
  uint64_t best = first;
  uint64_t least = ~uint64_t{0};
  for (uint64_t candidate = first; candidate <= 2 * first; candidate += step) {
    const uint64_t quantum = candidate / granules_per_shard;
    const uint64_t padding = PaddingOf(tensors, candidate, quantum, alignment);
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

// The tensors of one size of elements, which are packed as if there were no others.
struct Kind {
  uint64_t element_bytes = 0;
  std::vector<uint32_t> members{};    // by the list of all
  std::vector<TensorShape> shapes{};  // of the members
  uint64_t elements = 0;
};

std::vector<Kind> KindsOf(std::span<const TensorShape> tensors) {
  std::vector<Kind> kinds;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = tensors[i].element_bytes;
    auto kind = std::ranges::find(kinds, bytes, &Kind::element_bytes);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {.element_bytes = bytes});
    kind->members.push_back(i);
    kind->shapes.push_back(tensors[i]);
    kind->elements += tensors[i].elements;
  }
  return kinds;
}

// How one kind is packed.
struct Grain {
  uint64_t alignment = 0;  // of tensors; these are all in elements
  uint64_t chunk_elements = 0;
  uint64_t granule_elements = 0;
};

// `alone`: there is no other kind, and a chunk size that is given may be larger than all of it.
Grain GrainOf(const Kind& kind, const LayoutOptions& options, bool alone) {
  const uint64_t world = static_cast<uint64_t>(options.world_size);
  Grain grain;
  grain.alignment = kTensorAlignmentBytes / kind.element_bytes;
  // A model smaller than one chunk is one chunk.
  const uint64_t most =
      base::RoundUp(kind.elements, grain.alignment) + kind.shapes.size() * grain.alignment;
  uint64_t start = options.chunk_elements;
  if (start == 0) {
    start = std::max(LargestOrdinary(kind.shapes, grain.alignment), kMinChunkElements);
  }
  if (options.chunk_elements == 0 || !alone) start = std::min(start, most);
  const uint64_t chunks_expected = std::max<uint64_t>(kind.elements / start, 1);
  const uint64_t per_shard = std::clamp<uint64_t>(
      (kWantedGranules + chunks_expected - 1) / chunks_expected, 1,
      std::clamp<uint64_t>(start / world / kMinGranuleElements, 1, kMaxGranulesPerShard));
  const uint64_t shard_unit =
      std::lcm(world * per_shard * grain.alignment, options.extent_bytes / kind.element_bytes);
  grain.chunk_elements =
      options.chunk_elements != 0
          ? base::RoundUp(start, shard_unit)
          : SearchChunkElements(kind.shapes, start, shard_unit, per_shard, grain.alignment);
  grain.granule_elements = grain.chunk_elements / world / per_shard;
  return grain;
}

// Chunks of the kind, after those of the kinds before.
void Pack(const Kind& kind, const Grain& grain, uint64_t world, Layout* layout) {
  const uint64_t quantum = grain.granule_elements * world;
  const size_t first = layout->chunks.size();
  Packer packer(grain.chunk_elements, quantum, grain.alignment);
  for (size_t i = 0; i < kind.members.size(); ++i) {
    const TensorShape& shape = kind.shapes[i];
    const TensorPlace place = packer.Place(shape.elements, &layout->chunks, shape.trainable);
    layout->tensors[kind.members[i]] = place;
    layout->chunks[place.chunk].tensors.push_back(kind.members[i]);
  }
  for (size_t c = first; c < layout->chunks.size(); ++c) {
    ChunkShape& chunk = layout->chunks[c];
    chunk.element_bytes = kind.element_bytes;
    chunk.granule_elements = grain.granule_elements;
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
    const Grain grain = GrainOf(kind, options, kinds.size() == 1);
    Pack(kind, grain, static_cast<uint64_t>(options.world_size), &layout);
    if (kind.elements <= most) continue;
    most = kind.elements;
    layout.chunk_elements = grain.chunk_elements;
  }
  return layout;
}

}  // namespace geminid::zero
