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

}  // namespace

absl::StatusOr<Layout> MakeLayout(std::span<const TensorShape> tensors,
                                  const LayoutOptions& options) {
  absl::StatusOr<uint64_t> total = TotalElements(tensors);
  if (!total.ok()) return total.status();
  if (options.world_size < 1) return absl::InvalidArgumentError("world_size must be at least 1");
  const uint64_t world = static_cast<uint64_t>(options.world_size);
  const uint64_t alignment = kTensorAlignmentBytes / options.element_bytes;

  uint64_t start = options.chunk_elements;
  if (start == 0) {
    start = std::max(LargestOrdinary(tensors, alignment), kMinChunkElements);
    // A model smaller than one chunk is one chunk.
    start = std::min(start, base::RoundUp(*total, alignment) + tensors.size() * alignment);
  }
  const uint64_t chunks_expected = std::max<uint64_t>(*total / start, 1);
  const uint64_t per_shard = std::clamp<uint64_t>(
      (kWantedGranules + chunks_expected - 1) / chunks_expected, 1,
      std::clamp<uint64_t>(start / world / kMinGranuleElements, 1, kMaxGranulesPerShard));
  const uint64_t shard_unit =
      std::lcm(world * per_shard * alignment, options.extent_bytes / options.element_bytes);

  Layout layout;
  layout.chunk_elements =
      options.chunk_elements != 0
          ? base::RoundUp(options.chunk_elements, shard_unit)
          : SearchChunkElements(tensors, start, shard_unit, per_shard, alignment);
  layout.granule_elements = layout.chunk_elements / world / per_shard;
  const uint64_t quantum = layout.granule_elements * world;

  Packer packer(layout.chunk_elements, quantum, alignment);
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorPlace place =
        packer.Place(tensors[i].elements, &layout.chunks, tensors[i].trainable);
    layout.tensors.push_back(place);
    layout.chunks[place.chunk].tensors.push_back(i);
    layout.used_elements += tensors[i].elements;
  }
  for (ChunkShape& chunk : layout.chunks) {
    chunk.first_granule = layout.granules;
    chunk.granules = static_cast<uint32_t>(chunk.elements / quantum);
    layout.granules += chunk.granules;
    layout.padding_elements += chunk.elements - chunk.used_elements;
  }
  return layout;
}

}  // namespace geminid::zero
